"""Bulk actions: their rows, the walk through the tasks of a filter, and the chunks in which they are carried out."""
