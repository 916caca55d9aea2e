"""What every process of a node does: start, control by the master, health, exit."""
