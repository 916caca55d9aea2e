"""How a node is, on the whole: in a line for people, and whether it should better be started anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peerd.supervision.processes.process_table import SlotEntry
from peerd.supervision.processes.slot import SlotState

AGENT_LOST_AFTER: Final = 20
"""Failures in a row after which the agent is lost; with the longest backoff, that is about eight minutes."""


def is_healthy(agent: SlotEntry | None, now: float) -> bool:
    """Whether a node is worth keeping as it is. That the master asks says that its own loop goes round.

    Without an agent nobody hears of the node, nor gives back what its dead processes held; so an agent that keeps
    failing is a reason to start anew (it does not fail for an outage of the database, which it waits for). Workers are
    none: their code is the user's, a restart would not mend it, and would take the others' work away.
    """
    if agent is None or agent.slot.failures < AGENT_LOST_AFTER:
        return True
    ready_at = agent.slot.ready_at
    return ready_at is not None and now - ready_at >= agent.slot.kind.stable_after


def format_status_line(phase: str, entries: Sequence[SlotEntry], *, reloading: bool) -> str:
    """The node's phase, how many processes run, and which slots have none."""
    running = sum(entry.slot.state is SlotState.RUNNING for entry in entries)
    waiting = [f"{entry.slot.name} {entry.slot.state}" for entry in entries if _lacks_process(entry)]
    words = f"{'reloading' if reloading else phase}: {running} of {len(entries)} processes run"
    return f"{words}; {', '.join(waiting)}" if waiting else words


def _lacks_process(entry: SlotEntry) -> bool:
    return entry.slot.state in {SlotState.BACKOFF, SlotState.STARTING}
