"""Who started whom, as /proc tells it: for ending what a process leaves behind. Empty where there is no /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


def children(parent: int) -> list[int]:
    """Return the process ids of a process's children, zombies included."""
    return _children_by_parent().get(parent, [])


def descendants(ancestor: int) -> list[int]:
    """Return the process ids of all who descend from a process, nearest first, itself excluded."""
    children_of = _children_by_parent()
    found = list(children_of.get(ancestor, []))
    for pid in found:  # grows while it is read: a walk through the tree, level by level
        found.extend(children_of.get(pid, []))
    return found


def is_stopped(pid: int) -> bool:
    """Return whether a process has been stopped by a signal, or a debugger, and cannot run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in {"T", "t"}
    except OSError:
        return False


def kill_processes(pids: Iterable[int]) -> None:
    """Kill processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _children_by_parent() -> dict[int, list[int]]:
    children_of = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may end while we read
            # The command's name, in parentheses, may hold anything, so the fields are counted from its end.
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            children_of[int(fields[1])].append(int(entry.parent.name))
    return children_of
