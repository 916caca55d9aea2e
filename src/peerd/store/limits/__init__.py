"""Concurrency and rate limits: definitions, the capacity that they leave, and the claim of limited tasks."""
