"""What all processes of a node do alike, for any service."""
