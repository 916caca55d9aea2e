"""The HTTP server of a node's storage: contents for other nodes, files for clients."""
