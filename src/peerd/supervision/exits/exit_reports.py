"""The deaths that the agent has not acknowledged yet. Each is told again to every new agent until it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peerd.supervision.exits.exit_cause import ExitCause
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.process_table import ProcessTable

MAX_REPORTS: Final = 10_000
"""How many are kept while no agent takes them; beyond it the oldest are left to the sweep of frozen tasks."""


class ExitReports:
    """A small ledger, and the way to the agent."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._last_number = 0
        self._pending: dict[int, Mapping[str, object]] = {}

    def report(self, process: ChildProcess, cause: ExitCause) -> None:
        """Keep a death, and tell it to the agent if there is one now. A node without an agent keeps none."""
        agent = self._table.agent
        if agent is None:
            return
        self._last_number += 1
        self._pending[self._last_number] = _build_report(self._last_number, process, cause)
        if len(self._pending) > MAX_REPORTS:
            del self._pending[next(iter(self._pending))]
        if agent.process and agent.process.ready:
            agent.process.link.send(self._pending[self._last_number])

    def report_all(self, agent: ChildProcess) -> None:
        """Tell a new agent all that is not acknowledged, oldest first."""
        for message in self._pending.values():
            agent.link.send(message)

    def acknowledge(self, number: object) -> None:
        """Forget a death that the agent has dealt with; an unknown number is no error."""
        if isinstance(number, int):
            self._pending.pop(number, None)

    @property
    def unacknowledged(self) -> int:
        """How many are kept."""
        return len(self._pending)


def _build_report(number: int, process: ChildProcess, cause: ExitCause) -> dict[str, object]:
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
        "expected": process.is_expected_exit(cause),
        "cause": cause.to_json(),
    }
