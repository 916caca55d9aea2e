"""The lines of a process that are not in the table yet, in a file of the node's run directory.

A process that is killed or aborts writes nothing more, and its last lines say most about its end. What it has put into
the file stays; the next worker process that starts on the node writes it into the table. A line is put there by the
thread that logs it, so none is late. An error of the disk costs these copies alone: the lines are written as before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil

from peerd.store.tasks.log_lines import LoggedLine

PREFIX: Final = "lines-"
"""Of the names of the files; the number of the process follows."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of a file: what a process logs meanwhile in a long outage has no copy."""
LINES_OF_A_PART: Final = 1000


class LineJournal:
    """The file of this process. Raises `OSError` where none can be made.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"{PREFIX}{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size  # an earlier process had the same number

    def append(self, line: LoggedLine) -> None:
        """Put a line into it, if there is room."""
        if self._size < MOST_BYTES:
            with suppress(OSError):
                self._size += os.write(self._descriptor, msgspec.json.encode(line) + b"\n")

    def clear(self) -> None:
        """All its lines are in the table."""
        if self._size:
            os.ftruncate(self._descriptor, 0)
            self._size = 0

    def close(self) -> None:
        """All its lines are in the table, and there will be no further ones."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def left_lines(self) -> Iterator[list[LoggedLine]]:
        """The lines in the files of processes that have ended, in parts; each is written before the next is asked for.

        Two processes may read the same file: a line is written once, whoever writes it.
        """
        for path in sorted(self._path.parent.glob(f"{PREFIX}*")):
            number = path.name.removeprefix(PREFIX)
            is_own = path == self._path
            if number.isdecimal() and (is_own or not psutil.pid_exists(int(number))):
                with suppress(OSError):
                    lines = list(_decoded(path.read_bytes()))
                    for start in range(0, len(lines), LINES_OF_A_PART):
                        yield lines[start : start + LINES_OF_A_PART]
                    if not is_own:
                        path.unlink()


def _decoded(content: bytes) -> Iterator[LoggedLine]:
    for line in content.splitlines():
        with suppress(msgspec.MsgspecError):  # a full disk has cut it
            yield msgspec.json.decode(line, type=LoggedLine)
