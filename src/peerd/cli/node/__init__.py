"""Commands on the node of this machine: start, stop, reload, scale, status and logs."""
