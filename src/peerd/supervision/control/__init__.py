"""The control socket of a node: its client, its server, and the frame channel below both."""
