"""Parents, children and descendants of processes on Linux.

Where there is no /proc, the lists are empty; where there is no prctl, its calls do nothing, and the end of file on the
link replaces the death signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def die_with_parent(number: signal.Signals, parent: int) -> bool:
    """Have the kernel send this process a signal when its parent ends; return whether the parent still exists.

    The signal is bound to the **thread** that started this process: start it from a thread that lives as long as the
    parent, such as the main thread. Call this after exec, because fork and setuid programs drop it. Raises OSError.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def become_subreaper() -> None:
    """Make this process the parent of all its descendants whose parents end. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def children(parent: int) -> list[int]:
    """The process ids of a process's children, zombies included."""
    return _children_by_parent().get(parent, [])


def descendants(ancestor: int) -> list[int]:
    """The process ids of all descendants of a process, level by level."""
    children_of = _children_by_parent()
    found = list(children_of.get(ancestor, []))
    for pid in found:  # grows during the iteration
        found.extend(children_of.get(pid, []))
    return found


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process, so that it cannot run."""
    try:
        return _stat_fields(Path(f"/proc/{pid}/stat"))[0] in {"T", "t"}
    except OSError:
        return False


def kill_processes(pids: Iterable[int]) -> None:
    """Kill processes that may have ended already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _children_by_parent() -> dict[int, list[int]]:
    children_of = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may end meanwhile
            children_of[int(_stat_fields(entry)[1])].append(int(entry.parent.name))
    return children_of


def _stat_fields(path: Path) -> list[str]:
    """The fields after the command's name, which stands in parentheses and may hold any character."""
    return path.read_text(errors="replace").rpartition(")")[2].split()
