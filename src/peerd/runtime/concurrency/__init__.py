"""Threads, periodic threads, background tasks, and forks."""
