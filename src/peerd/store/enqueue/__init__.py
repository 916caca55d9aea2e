"""Enqueuing: unique keys, and the INSERT statements of each database."""
