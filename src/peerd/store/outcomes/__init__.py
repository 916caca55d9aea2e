"""What the holder of a claim writes: touches, progress, success and every other outcome."""
