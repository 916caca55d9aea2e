"""What the master says to people: lines on stderr, which must never hold it up or end it."""

from __future__ import annotations

import contextlib
import os
import select
import traceback
from datetime import datetime
from typing import Final

from peerd.runtime.logfile import is_file

_STDERR: Final = 2
_LONGEST: Final = select.PIPE_BUF


class Console:
    """The master's voice.

    A pipe that nobody reads, a terminal that is held, a reader that has gone: the line is dropped, the node goes on.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._dated = is_file(_STDERR)  # which may be read much later

    def say(self, text: str) -> None:
        """Write one line."""
        time = f"{datetime.now():%Y-%m-%d %H:%M:%S.%f} " if self._dated else ""  # noqa: DTZ005 - as the log's others
        line = f"{time}peerd {self._node}: {text}\n".encode(errors="replace")
        if len(line) > _LONGEST:  # poll promises room for this many bytes and no more
            line = line[: _LONGEST - 4] + b"...\n"
        with contextlib.suppress(OSError):
            poll = select.poll()
            poll.register(_STDERR, select.POLLOUT)
            if poll.poll(0):
                os.write(_STDERR, line)

    def fault(self, error: BaseException) -> None:
        """Say that the master itself has a fault, and where."""
        self.say("fault in the master (please report it); the node goes on:")
        for line in traceback.format_exception(error):
            for part in line.rstrip().splitlines():
                self.say(part)
