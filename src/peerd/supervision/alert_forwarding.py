"""What a person should hear of: on the master's console, and by the agent, which knows the hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.supervision.console import Console
from peerd.supervision.processes.child_process import Process
from peerd.supervision.processes.process_table import Member, Roster


class Alerts:
    """The way from whoever has seen something to the agent. Without one, the console is all there is."""

    def __init__(self, roster: Roster, console: Console) -> None:
        self._roster = roster
        self._console = console

    def say(self, text: str) -> None:
        """Write a line for people; nobody is alarmed."""
        self._console.say(text)

    def about(self, member: Member | None, process: Process | None, alert: str, text: str) -> None:
        """Raise an alert of the master's own.

        Args:
            member: the slot that it is about, if it is about one.
            process: the process.
            alert: its kind, such as `crash-loop`.
            text: for people.
        """
        slot = member.slot if member else None
        self._send({
            "type": "alert",
            "alert": alert,
            "text": text,
            "slot": slot.name if slot else None,
            "kind": slot.kind.name if slot else None,
            "pid": process.pid if process else None,
            "data": {},
        })  # fmt: skip

    def relay(self, process: Process, message: Mapping[str, Any]) -> None:
        """Pass on the alert of a process."""
        text = str(message.get("text"))
        self._console.say(f"alert of {process.slot}: {text}", level="error")
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
        agent = self._roster.agent
        if agent and agent.process and agent.process.ready:
            agent.process.link.send(frame)
