"""Nodes and processes: registration, heartbeats, and the handlers that each process knows."""
