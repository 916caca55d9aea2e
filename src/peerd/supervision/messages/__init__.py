"""Routing of messages between the processes of a node."""
