"""Schedules: the scheduler in the agent fires ticks; the dispatcher gives each run to a worker process' executor.

registry ── scheduler ── run_dispatcher ── messages ── run_executor (in a worker process)
                └──────────── the tables ────────────────┘ (through the agent)
"""
