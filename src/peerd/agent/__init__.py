"""The agent, one per node: its components, its subsystems, and the user code that each machine runs once."""
