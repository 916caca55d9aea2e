"""Open sources and publish outputs below the media directory."""
