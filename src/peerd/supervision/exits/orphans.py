"""What a dead process has left behind outside its group, as programs in sessions of their own.

The master is the subreaper: orphans of its children become its own children. Each child's environment holds a mark,
which programs inherit, so an orphan tells whose it was: those of the dead are killed, those of the living are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from peerd.runtime.process import process_tree

_NAME: Final = "PEERD_PROCESS"
_MAX_ROUNDS: Final = 100


def mark(slot: str, generation: int) -> dict[str, str]:
    """Return the environment variable that says: a process of this master, slot and generation."""
    return {_NAME: f"{os.getpid()}/{slot}/{generation}"}


def kill_orphans(marks: Mapping[str, str], known: Collection[int]) -> None:
    """Kill all orphans that carry a mark, with all that descend from them.

    Args:
        marks: as `mark` made it.
        known: process ids of children that are supervised, not orphans.
    """
    wanted = f"{_NAME}={marks[_NAME]}".encode()
    _kill({pid for pid in _adopted(known) if wanted in _environment(pid)})


def kill_all_orphans() -> None:
    """Kill and reap the orphans of all processes that this master has had. To be called when those are gone."""
    wanted = f"{_NAME}={os.getpid()}/".encode()
    for _ in range(_MAX_ROUNDS):  # what is killed may bring more to light
        found = {pid for pid in _adopted(()) if any(entry.startswith(wanted) for entry in _environment(pid))}
        if not found:
            break
        _kill(found)
        time.sleep(0.01)
        reap(())


def reap(known: Collection[int]) -> None:
    """Take the exit status of adopted children that have ended, and never that of a supervised one."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in known:
            return  # a supervised child's death is told by its pidfd, and the loop comes back here after it
        os.waitpid(ended.si_pid, 0)


def _adopted(known: Collection[int]) -> list[int]:
    return [pid for pid in process_tree.children(os.getpid()) if pid not in known]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended, or is not ours to look at


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        process_tree.kill_processes([*process_tree.descendants(pid), pid])
