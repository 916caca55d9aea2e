"""What every peer can do, in its own best documented way; and the two tasks that each of them has."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path
from typing import ClassVar, Final

WARM_VARIABLE: Final = "BENCH_WARM"
TASKS_VARIABLE: Final = "BENCH_TASKS"
ANSWER_VARIABLE: Final = "BENCH_ANSWER"
NOTES_VARIABLE: Final = "BENCH_NOTES"

_ended = count(1)
_marks: list[tuple[float, float]] = []


class PeerQueue(ABC):
    """One queue on one store.

    Args:
        url: an empty store: mysql://…, postgresql://…, sqlite:///file or redis://…; with ?synchronous=NORMAL on SQLite,
            where it should not wait for the disk at each commit.
    """

    distribution: ClassVar[str]
    """What it is called on PyPI."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def prepare(self) -> None:
        """Make the tables, where it has any."""

    @abstractmethod
    def enqueue_singly(self, number: int) -> None:
        """Enqueue `noop` so many times, each accepted before the next one."""

    @abstractmethod
    def enqueue_together(self, number: int) -> None:
        """Enqueue `noop` so many times, all at once where it can."""

    @abstractmethod
    def enqueue_note(self, number: int) -> None:
        """Enqueue one `note`."""

    @abstractmethod
    def left(self) -> int:
        """How many tasks its store says are not done."""

    @abstractmethod
    def work(self, at_once: int) -> None:
        """Be a worker process, for so many tasks at once (or in a batch), until killed."""


def noop() -> None:
    """What each peer's empty task calls: count, and tell when the measured ones began and ended."""
    ended = next(_ended)
    warm = int(os.environ[WARM_VARIABLE])
    last = warm + int(os.environ[TASKS_VARIABLE])
    if ended in (warm, last):
        _marks.append((time.perf_counter(), time.process_time()))
    if ended == last:
        (began, used), (finished, used_then) = sorted(_marks)
        answer = Path(os.environ[ANSWER_VARIABLE])
        draft = answer.with_suffix(".draft")
        draft.write_text(json.dumps({"seconds": finished - began, "cpu": used_then - used}))
        draft.rename(answer)


def note(number: int) -> None:
    """Write down this moment, by the machine's monotonic clock."""
    began = time.monotonic_ns()
    file = os.open(os.environ[NOTES_VARIABLE], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{number} {began}\n".encode())
    os.close(file)
