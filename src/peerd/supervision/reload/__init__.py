"""Reloads: their queue, the planner process, and the rolling restart."""
