"""What the master reports: lines on stderr, which never block or end it, and exits and alerts to the agent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from peerd.domain.quoting import escape_line
from peerd.runtime.observability.log_file import is_regular_file
from peerd.supervision.child_process import ChildProcess
from peerd.supervision.exits import ExitCause
from peerd.supervision.process_table import ProcessTable, SlotEntry

CANNOT_START: Final = "cannot start: "
"""Precedes the cause of a failed start."""

_STDERR: Final = 2
_MAX_LINE_BYTES: Final = select.PIPE_BUF


class Console:
    """The master's log. A line that stderr cannot take at once (a full pipe, a stopped terminal) is dropped.

    Args:
        node: its name.
        form: `console` for text, or `json` for an object per line, as in the log of the node's processes.
    """

    def __init__(self, node: str, form: str = "console") -> None:
        self._node = node
        self._is_json = form == "json"
        self._dated = is_regular_file(_STDERR)

    def log(self, text: str, *, level: str = "info") -> None:
        """Write one line; only JSON shows its level."""
        line = self._line(text, level)
        if len(line) > _MAX_LINE_BYTES:  # poll guarantees room for this many bytes and no more
            room = _MAX_LINE_BYTES - len(self._line("...", level))
            most = room // 3 if self._is_json else room  # JSON escapes two bytes by six
            fitting = escape_line(text).encode(errors="replace")[:most]
            line = self._line(fitting.decode(errors="ignore") + "...", level)
        with contextlib.suppress(OSError):
            poll = select.poll()
            poll.register(_STDERR, select.POLLOUT)
            if poll.poll(0):
                os.write(_STDERR, line)

    def report_fault(self, error: BaseException) -> None:
        self.log("fault in the master (please report it); the node continues:", level="error")
        for line in traceback.format_exception(error):
            for part in line.rstrip().splitlines():
                self.log(part, level="error")

    def _line(self, text: str, level: str) -> bytes:
        if self._is_json:
            at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            entry = {"node": self._node, "slot": "master", "level": level, "timestamp": at, "event": text}
            return json.dumps(entry).encode() + b"\n"
        time = f"{datetime.now():%Y-%m-%d %H:%M:%S.%f} " if self._dated else ""  # noqa: DTZ005 - as other log lines
        return f"{time}peerd {self._node}: {escape_line(text)}\n".encode(errors="replace")


# ---------------------------------------------------------------- to the agent


# of more, the oldest are dropped; the tasks of these processes are then rescued when they are no longer touched
MAX_REPORTS: Final = 10_000
"""Exit reports that are kept until an agent acknowledges them."""


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
