"""Rotation of the node's log file, in one process of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from peerd.runtime.observability import logfile

CHECK_INTERVAL: Final = 2.0
"""The longest time between two checks of the file, seconds."""
MIN_CHECK_INTERVAL: Final = 0.05
MAX_WRITE_RATE: Final = 200_000_000
"""Bytes per second of a burst: the next check comes before the file could be full at this rate."""


class LogRotation:
    """Rotates the log when it is full, and detects that another program has renamed or deleted it.

    The master then has every process reopen it; until then they write to the old file, and no line is lost.

    Args:
        path: of the log.
        max_size: bytes at which it is rotated; 0: never, because logrotate does it.
        keep: the maximum number of rotated files.
        ask_to_reopen: sends the request to the master.
    """

    def __init__(self, path: Path, max_size: int, keep: int, ask_to_reopen: Callable[[], None]) -> None:
        self._path = path
        self._max_size = max_size
        self._keep = keep
        self._ask_to_reopen = ask_to_reopen

    async def run(self) -> None:
        """Check the file periodically."""
        while True:
            self.check()
            await asyncio.sleep(self._check_interval())

    def check(self) -> None:
        """Rotate the log if it is full. Raises OSError if it cannot be renamed."""
        if not logfile.is_written_by(self._path):
            self._ask_to_reopen()
        elif 0 < self._max_size <= self._path.stat().st_size:
            logfile.rotate(self._path, self._keep)
            self._ask_to_reopen()

    def _check_interval(self) -> float:
        """A nearly full file is checked often: at fixed intervals, a burst writes five times the maximum size."""
        if not self._max_size:
            return CHECK_INTERVAL
        try:
            free_bytes = self._max_size - self._path.stat().st_size
        except FileNotFoundError:  # the master is about to open it
            free_bytes = self._max_size
        return min(CHECK_INTERVAL, max(MIN_CHECK_INTERVAL, free_bytes / MAX_WRITE_RATE))
