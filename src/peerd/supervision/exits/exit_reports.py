"""The deaths that the agent has not acknowledged yet. Each is told again to every new agent until it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peerd.supervision.exits.exit_cause import Cause
from peerd.supervision.processes.child_process import Process
from peerd.supervision.processes.process_table import Roster

MAXIMUM: Final = 10_000
"""How many are kept while no agent takes them; beyond it the oldest are left to the sweep of frozen tasks."""


class Deaths:
    """A small ledger, and the way to the agent."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._last = 0
        self._kept: dict[int, Mapping[str, object]] = {}

    def tell(self, process: Process, cause: Cause) -> None:
        """Keep a death, and tell it to the agent if there is one now. A node without an agent keeps none."""
        agent = self._roster.agent
        if agent is None:
            return
        self._last += 1
        self._kept[self._last] = _message(self._last, process, cause)
        if len(self._kept) > MAXIMUM:
            del self._kept[next(iter(self._kept))]
        if agent.process and agent.process.ready:
            agent.process.link.send(self._kept[self._last])

    def tell_all(self, agent: Process) -> None:
        """Tell a new agent all that is not acknowledged, oldest first."""
        for message in self._kept.values():
            agent.link.send(message)

    def acknowledge(self, number: object) -> None:
        """Forget a death that the agent has dealt with; an unknown number is no error."""
        if isinstance(number, int):
            self._kept.pop(number, None)

    @property
    def unacknowledged(self) -> int:
        """How many are kept."""
        return len(self._kept)


def _message(number: int, process: Process, cause: Cause) -> dict[str, object]:
    stuck = {"stuck": process.stuck} if process.stuck else {}
    return {
        **stuck,
        "type": "death",
        "id": number,
        "slot": process.slot,
        "kind": process.kind.name,
        "role": process.kind.role,
        "pid": process.pid,
        "identity": process.identity,
        "expected": process.ends_as_it_should(cause),
        "cause": cause.to_json(),
    }
