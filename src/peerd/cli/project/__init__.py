"""Commands that set up a project, and check it."""
