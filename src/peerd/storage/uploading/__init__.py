"""Putting a content in parts, from a client: what is sent, the requests, and their order with all that can fail."""
