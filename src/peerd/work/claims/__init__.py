"""Fetch tasks, hold their claims, and touch them."""
