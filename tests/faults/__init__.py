"""Faults on real processes: nodes under load, machines that try to break them, and a checker of what happened."""
