"""Processes that are stopped by SIGSTOP, which takes effect after `kill` has returned."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from peerd.testing import eventually

STOPPED_STATES = frozenset("TtZX")
"""States of a thread in `/proc` in which it runs nothing more."""


def stop_processes(pids: Iterable[int]) -> None:
    pids = list(pids)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    wait_until_stopped(pids)


def wait_until_stopped(pids: Iterable[int]) -> None:
    """After SIGSTOP: until then a thread on another processor continues, and may take a lock."""
    pids = list(pids)
    eventually(lambda: all(map(is_stopped, pids)), every=0.001, message=f"the threads of {pids} are stopped")


def is_stopped(pid: int) -> bool:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True
    return all(_state_of(thread) in STOPPED_STATES for thread in threads)


def _state_of(thread: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    return "X"
