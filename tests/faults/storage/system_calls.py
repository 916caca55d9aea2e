"""Calls of the system that fail with EIO in processes of a node, by libfiu (Debian: fiu-utils)."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Final

LIBRARIES: Final = tuple(Path("/usr/lib/fiu") / name for name in ("fiu_run_preload.so", "fiu_posix_preload.so"))
CALLS: Final = {"fsync": "posix/io/sync/fsync", "read": "posix/io/rw/pread", "write": "posix/io/rw/pwrite"}
"""The points of libfiu by the name of what fails. Sockets and logs use other calls of the system."""
CONTROL_TIMEOUT: Final = 5.0


def can_fail() -> bool:
    """Whether libfiu is there."""
    return all(library.exists() for library in LIBRARIES)


class SystemCalls:
    """Lets the calls of processes fail.

    Args:
        control: path of their pipes, to which the process id is appended.
    """

    def __init__(self, control: Path) -> None:
        self._control = control

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the processes must have been started."""
        return {"LD_PRELOAD": " ".join(map(str, LIBRARIES)), "FIU_CTRL_FIFO": str(self._control)}

    def fail(self, pid: int, call: str, probability: float) -> bool:
        """Let some of the calls of a process fail with EIO; whether it could be reached."""
        return self._command(pid, f"enable_random name={CALLS[call]},probability={probability},failinfo={errno.EIO}")

    def heal(self, pid: int, call: str) -> bool:
        """Let them succeed again."""
        return self._command(pid, f"disable name={CALLS[call]}")

    def _command(self, pid: int, command: str) -> bool:
        if not Path(f"{self._control}-{pid}.in").exists():
            return False
        control = ["fiu-ctrl", "-f", str(self._control), "-c", command, str(pid)]
        try:
            return subprocess.run(control, capture_output=True, timeout=CONTROL_TIMEOUT, check=False).returncode == 0
        except subprocess.TimeoutExpired:  # it has ended, or stands still: no one reads its pipe
            return False
