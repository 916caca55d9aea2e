"""Alerts in their table: written by the agents, read by operations, kept for a while."""
