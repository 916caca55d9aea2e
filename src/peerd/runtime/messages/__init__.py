"""Messages between the processes of a node: targets, frames, sending, and the handlers of what is received."""
