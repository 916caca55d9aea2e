"""The doorbell of a node: its agent hears it, and wakes the workers. See docs/doorbell.md."""
