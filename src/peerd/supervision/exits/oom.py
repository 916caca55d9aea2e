"""Detects kills by the kernel's out-of-memory killer, which a SIGKILL alone does not show.

The counter of the process's own cgroup is exact (version 2: memory.events, version 1: memory.oom_control); that of the
machine (/proc/vmstat), the fallback, includes other programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_VMSTAT: Final = Path("/proc/vmstat")


class OomKillCounter:
    """Reads the kernel's counter of out-of-memory kills.

    Args:
        counters: files with a line `oom_kill N`, of which the first readable one is used; None for the system's.
    """

    def __init__(self, counters: list[Path] | None = None) -> None:
        self._counters = [*_own_cgroup_counters(), _VMSTAT] if counters is None else counters
        self._seen = self._count()

    def has_killed(self) -> bool:
        """Return whether the counter has grown since the last call."""
        before, self._seen = self._seen, self._count()
        return before is not None and self._seen is not None and self._seen > before

    def _count(self) -> int | None:
        return next((count for file in self._counters if (count := read_oom_kills(file)) is not None), None)


def read_oom_kills(file: Path) -> int | None:
    """Return the number in the line `oom_kill N` of a file; None without one."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts and counts[0].isdigit() else None


def _own_cgroup_counters() -> Iterator[Path]:
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:  # "0::/path" in version 2, "4:memory:/path" in version 1
        _, controllers, path = group.split(":", 2)
        if not controllers:
            yield Path(f"/sys/fs/cgroup{path}") / "memory.events"
        elif "memory" in controllers.split(","):
            yield Path(f"/sys/fs/cgroup/memory{path}") / "memory.oom_control"
            yield Path("/sys/fs/cgroup/memory/memory.oom_control")
