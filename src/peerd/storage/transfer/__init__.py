"""Moving contents between nodes: signed HTTP requests, ranges, resume, and other sources in the middle of a file."""
