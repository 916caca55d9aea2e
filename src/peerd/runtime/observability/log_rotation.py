"""Keeps the node's log file from growing without end. One process of the node does it, for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from peerd.runtime.observability import logfile

CHECK_INTERVAL: Final = 2.0
"""The longest time between two looks at the file, seconds."""

MIN_CHECK_INTERVAL: Final = 0.05

MAX_WRITE_RATE: Final = 200_000_000
"""Bytes per second that a burst may write: the next look comes before the file could be full at that rate."""


class LogRotation:
    """Rotates the log when it is full, and notices when somebody else has renamed or deleted it.

    Then every process must open it anew, which is the master's to tell them; until they do, they write on to the old
    file, and nothing is lost.

    Args:
        path: of the log.
        max_size: bytes at which it is rotated; 0 is never, for where logrotate does it.
        keep: how many rotated files there are at most.
        ask_to_reopen: asks the master.
    """

    def __init__(self, path: Path, max_size: int, keep: int, ask_to_reopen: Callable[[], None]) -> None:
        self._path = path
        self._max_size = max_size
        self._keep = keep
        self._ask_to_reopen = ask_to_reopen

    async def run(self) -> None:
        """Look again and again."""
        while True:
            self.check()
            await asyncio.sleep(self._check_interval())

    def check(self) -> None:
        """Rotate the log if it is full.

        Raises:
            OSError: it cannot be renamed.
        """
        if not logfile.is_written_by(self._path):
            self._ask_to_reopen()
        elif self._is_full():
            logfile.rotate(self._path, self._keep)
            self._ask_to_reopen()

    def _check_interval(self) -> float:
        """A file that is nearly full is looked at often: looks at fixed times let a burst write five times as much."""
        if not self._max_size:
            return CHECK_INTERVAL
        try:
            free_bytes = self._max_size - self._path.stat().st_size
        except FileNotFoundError:  # the master is about to open it
            free_bytes = self._max_size
        return min(CHECK_INTERVAL, max(MIN_CHECK_INTERVAL, free_bytes / MAX_WRITE_RATE))

    def _is_full(self) -> bool:
        return 0 < self._max_size <= self._path.stat().st_size
