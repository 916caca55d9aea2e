"""Builds the plan of a node from its settings (`node_plan`), and in each child the service of its role from the plan.

Each role has a module of its own, so that a process imports only what it needs.
"""
