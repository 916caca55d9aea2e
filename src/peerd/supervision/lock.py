"""One master per run directory: whoever holds the lock is it. The kernel frees it when the master ends, however."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from peerd.supervision.control import LOCK_FILE, PID_FILE


class AlreadyRunning(Exception):
    """Another master works in the run directory."""

    def __init__(self, run_directory: Path, pid: str) -> None:
        super().__init__(
            f"already running as process {pid or '?'} in {run_directory}: stop it first (peerd stop), "
            "or give this node another name or run directory"
        )


class NodeLock:
    """The lock of a run directory, and the file with the master's process id for people and tools."""

    def __init__(self, run_directory: Path) -> None:
        """Take the lock, making the folder if need be.

        Raises:
            AlreadyRunning: another master holds it.
        """
        run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._pid_file = run_directory / PID_FILE
        self._fd = os.open(run_directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._fd)
            raise AlreadyRunning(run_directory, self._other()) from error
        self._pid_file.write_text(f"{os.getpid()}\n")

    def __enter__(self) -> Self:
        """Hold it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the next master in."""
        self._pid_file.unlink(missing_ok=True)
        os.close(self._fd)

    def _other(self) -> str:
        with contextlib.suppress(OSError):
            return self._pid_file.read_text().strip()
        return ""
