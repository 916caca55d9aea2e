"""The video worker: probe, transcode, poster. It uses peerd's public API only; what it does, a user can do."""
