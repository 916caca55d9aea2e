"""Commands for the node of this machine."""
