"""The dashboard: pages that are rendered on the server, call the client, and need no JavaScript."""
