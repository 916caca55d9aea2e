"""The doorbell: whoever commits new work rings at the nodes, so that nobody waits for a poll. See docs/doorbell.md."""
