"""What the master reports to the agent: exits of processes, and alerts, which it also logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from peerd.supervision.console import Console
from peerd.supervision.exits import ExitCause
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.process_table import ProcessTable, SlotEntry

MAX_REPORTS: Final = 10_000
"""Exit reports that are kept until an agent acknowledges them. Of more, the oldest are dropped; the tasks of these
processes are then rescued when they are no longer touched."""


class AgentReports:
    """Sends exit reports and alerts to the agent.

    An exit report is sent again to each new agent until one acknowledges it. An alert is sent once; without an agent it
    is only logged.
    """

    def __init__(self, table: ProcessTable, console: Console) -> None:
        self._table = table
        self._console = console
        self._last_number = 0
        self._unacknowledged: dict[int, Mapping[str, object]] = {}

    def report_exit(self, process: ChildProcess, cause: ExitCause) -> None:
        """Keep and send an exit report, if the node has an agent."""
        if self._table.agent is None:
            return
        self._last_number += 1
        report = {
            **({"stuck": process.stuck} if process.stuck else {}),
            "type": "death",
            "id": self._last_number,
            "slot": process.slot,
            "kind": process.kind.name,
            "role": process.kind.role,
            "pid": process.pid,
            "identity": process.identity,
            "expected": process.is_expected_exit(cause),
            "cause": cause.to_json(),
        }
        self._unacknowledged[self._last_number] = report
        if len(self._unacknowledged) > MAX_REPORTS:
            del self._unacknowledged[next(iter(self._unacknowledged))]
        self._send(report)

    def resend_exits(self, agent: ChildProcess) -> None:
        """Send a new agent all unacknowledged exit reports, oldest first."""
        for report in self._unacknowledged.values():
            agent.link.send(report)

    def acknowledge_exit(self, number: object) -> None:
        if isinstance(number, int):
            self._unacknowledged.pop(number, None)

    @property
    def has_unacknowledged_exits(self) -> bool:
        return bool(self._unacknowledged)

    def raise_alert(self, entry: SlotEntry | None, process: ChildProcess | None, alert: str, text: str) -> None:
        """Send an alert of the master's own, such as `crash-loop`, about a slot and its process, if any."""
        slot = entry.slot if entry else None
        about = {"slot": slot.name if slot else None, "kind": slot.kind.name if slot else None}
        pid = process.pid if process else None
        self._send({"type": "alert", "alert": alert, "text": text, **about, "pid": pid, "data": {}})

    def forward_alert(self, process: ChildProcess, message: Mapping[str, Any]) -> None:
        text, data = str(message.get("text")), message.get("data")
        self._console.log(f"alert of {process.slot}: {text}", level="error")
        about = {"slot": process.slot, "kind": process.kind.name, "pid": process.pid}
        alert = str(message.get("alert", "exception"))
        data = data if isinstance(data, dict) else {}
        self._send({"type": "alert", "alert": alert, "text": text, **about, "data": data})

    def _send(self, frame: Mapping[str, object]) -> None:
        agent = self._table.agent
        if agent and agent.process and agent.process.ready:
            agent.process.link.send(frame)
