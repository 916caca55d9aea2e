"""Rows of the tasks table: reading, guarded writes, index conditions, and actions such as cancel and retry."""
