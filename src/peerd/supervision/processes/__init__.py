"""Child processes, the slots they run in, and the manager that starts, replaces and stops them."""
