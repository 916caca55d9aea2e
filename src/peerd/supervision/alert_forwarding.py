"""What a person should hear of: on the master's console, and by the agent, which knows the hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.supervision.console import Console
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.process_table import ProcessTable, SlotEntry


class AlertForwarder:
    """The way from whoever has seen something to the agent. Without one, the console is all there is."""

    def __init__(self, table: ProcessTable, console: Console) -> None:
        self._table = table
        self._console = console

    def log(self, text: str) -> None:
        """Write a line for people; nobody is alarmed."""
        self._console.log(text)

    def raise_alert(self, entry: SlotEntry | None, process: ChildProcess | None, alert: str, text: str) -> None:
        """Raise an alert of the master's own.

        Args:
            entry: the slot that it is about, if it is about one.
            process: the process.
            alert: its kind, such as `crash-loop`.
            text: for people.
        """
        slot = entry.slot if entry else None
        self._send({
            "type": "alert",
            "alert": alert,
            "text": text,
            "slot": slot.name if slot else None,
            "kind": slot.kind.name if slot else None,
            "pid": process.pid if process else None,
            "data": {},
        })  # fmt: skip

    def forward(self, process: ChildProcess, message: Mapping[str, Any]) -> None:
        """Pass on the alert of a process."""
        text = str(message.get("text"))
        self._console.log(f"alert of {process.slot}: {text}", level="error")
        data = message.get("data")
        self._send({
            "type": "alert",
            "alert": str(message.get("alert", "exception")),
            "text": text,
            "slot": process.slot,
            "kind": process.kind.name,
            "pid": process.pid,
            "data": data if isinstance(data, dict) else {},
        })  # fmt: skip

    def _send(self, frame: Mapping[str, object]) -> None:
        agent = self._table.agent
        if agent and agent.process and agent.process.ready:
            agent.process.link.send(frame)
