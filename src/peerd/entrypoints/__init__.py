"""Where the concrete pieces meet: settings → a plan for the master (`plan`), a plan's payload → a service in a child.

Each role has a module of its own, so that a process loads what it needs and nothing else.
"""
