"""Schedules: the agent's clock that fires, the way of a run to a worker process, and its running there.

book ── clock ── dispatch ── messages ── runner (in a worker process)
          └──────── the tables ────────────┘ (by way of the agent)
"""
