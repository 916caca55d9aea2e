"""`InlineNode` and its parts: a node in the test's own process, on a real database."""
