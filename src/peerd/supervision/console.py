"""The master's log lines on stderr, which must never block or end the master."""

from __future__ import annotations

import contextlib
import json
import os
import select
import traceback
from datetime import UTC, datetime
from typing import Final

from peerd.domain.quoting import escape_line
from peerd.runtime.observability.log_file import is_regular_file

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
