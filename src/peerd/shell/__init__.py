"""What all processes of a node do alike, whatever their service is."""
