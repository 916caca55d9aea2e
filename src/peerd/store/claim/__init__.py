"""Claiming tasks: candidates, the guarded write, the claim mutex, and claims of quarantined tasks."""
