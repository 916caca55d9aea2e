"""Kills what an ended process has left behind outside its process group: programs in sessions of their own.

The master is the subreaper, so orphans of its children become its own children. A variable in each child's environment,
which programs inherit, identifies the process that they come from: orphans of ended processes are killed, those of
living ones are not.
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
    """Return the environment variable that identifies a process by its master, slot and generation."""
    return {_NAME: f"{os.getpid()}/{slot}/{generation}"}


def kill_orphans(marks: Mapping[str, str], known: Collection[int]) -> None:
    """Kill all orphans that carry a mark, with their descendants; `known` are pids of supervised children."""
    wanted = f"{_NAME}={marks[_NAME]}".encode()
    _kill({pid for pid in _adopted(known) if wanted in _environment(pid)})


def kill_all_orphans() -> None:
    """Kill and reap the orphans of all processes of this master, after these have ended."""
    wanted = f"{_NAME}={os.getpid()}/".encode()
    for _ in range(_MAX_ROUNDS):  # a kill may make further orphans
        found = {pid for pid in _adopted(()) if any(entry.startswith(wanted) for entry in _environment(pid))}
        if not found:
            break
        _kill(found)
        time.sleep(0.01)
        reap(())


def reap(known: Collection[int]) -> None:
    """Reap adopted children that have ended, never a supervised one."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in known:
            return  # the pidfd of a supervised child wakes the loop, which calls this again afterwards
        os.waitpid(ended.si_pid, 0)


def _adopted(known: Collection[int]) -> list[int]:
    return [pid for pid in process_tree.children(os.getpid()) if pid not in known]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended, or belongs to another user


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        process_tree.kill_processes([*process_tree.descendants(pid), pid])
