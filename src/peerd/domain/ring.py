"""Rings of the doorbell: tasks are available or scheduled, claims were revoked, nodes have requests, or messages.

A ring is a hint, and the table is the truth: the receiver polls the table. A ring that is lost, late, duplicated or
needless costs one poll, or the wait for the next one, and can do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from peerd.domain.task import NAME_LIMIT, QUEUE_NAME

MAX_QUEUES = 32
"""Queues that a ring names; a ring for more of them is for all."""
MAX_TASKS = 100
"""Tasks that a ring names."""


class TasksAvailable(msgspec.Struct, frozen=True, tag="work", forbid_unknown_fields=True):
    """There are tasks to claim in these queues; in any queue if none is named."""

    queues: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.queues) > MAX_QUEUES or not all(QUEUE_NAME.fullmatch(queue) for queue in self.queues):
            raise ValueError("names what is no queue, or too many of them")


class TaskScheduled(msgspec.Struct, frozen=True, tag="due", forbid_unknown_fields=True):
    """A scheduled task is due in a number of seconds, or at a time of the database's clock (UNIX time)."""

    within: float | None = None
    at: float | None = None


class ClaimRevoked(msgspec.Struct, frozen=True, tag="taken", forbid_unknown_fields=True):
    """These tasks were canceled, moved, retried or deleted: a process that runs one of them must check its claim."""

    tasks: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tasks) > MAX_TASKS:
            raise ValueError("names too many tasks")


class Broadcast(msgspec.Struct, frozen=True, tag="broadcast", forbid_unknown_fields=True):
    """A message for the workers of all nodes."""

    action: str
    data: Any = None


class NodeRequested(msgspec.Struct, frozen=True, tag="request", forbid_unknown_fields=True):
    """A request waits for the node of this name, which must look at the table."""

    node: str

    def __post_init__(self) -> None:
        if not 0 < len(self.node) <= NAME_LIMIT:
            raise ValueError("names what is no node")


class SchedulesChanged(msgspec.Struct, frozen=True, tag="schedules", forbid_unknown_fields=True):
    """A schedule was created or deleted at run time: every node must look at the table."""


class Ping(msgspec.Struct, frozen=True, tag="trial", forbid_unknown_fields=True):
    """An agent's ring to its own endpoint, as a test."""

    word: str


Ring = TasksAvailable | TaskScheduled | ClaimRevoked | Broadcast | NodeRequested | SchedulesChanged | Ping


class Coalescer:
    """Merges rings until they are sent.

    >>> coalescer = Coalescer()
    >>> coalescer.add(TasksAvailable(("video",)))
    >>> coalescer.add(TasksAvailable(("mail", "video")))
    >>> coalescer.add(TaskScheduled(within=5.0))
    >>> coalescer.add(TaskScheduled(within=3.0))
    >>> coalescer.take()
    [TasksAvailable(queues=('mail', 'video')), TaskScheduled(within=3.0, at=None)]
    >>> coalescer.take()
    []
    """

    def __init__(self) -> None:
        self._queues: set[str] = set()
        self._any = False
        self._within: float | None = None
        self._at: float | None = None
        self._tasks: set[int] = set()
        self._others: list[Ring] = []

    def __bool__(self) -> bool:
        moments = self._within is not None or self._at is not None
        return bool(self._any or self._queues or moments or self._tasks or self._others)

    def add(self, ring: Ring) -> None:
        """Add a ring."""
        match ring:
            case TasksAvailable(queues):
                self._any = self._any or not queues
                self._queues.update(queues)
            case TaskScheduled(within, at):
                self._within = _earlier(self._within, within)
                self._at = _earlier(self._at, at)
            case ClaimRevoked(tasks):
                self._tasks.update(tasks)
            case other:
                self._others.append(other)

    def take(self) -> list[Ring]:
        """Return the rings to send, and keep none."""
        rings: list[Ring] = [*self._others]
        if self._any or self._queues:
            rings.append(TasksAvailable() if self._any else tasks_available_in(self._queues))
        if self._within is not None or self._at is not None:
            rings.append(TaskScheduled(self._within, self._at))
        ids = sorted(self._tasks)
        rings += [ClaimRevoked(tuple(ids[start : start + MAX_TASKS])) for start in range(0, len(ids), MAX_TASKS)]
        self.__init__()  # type: ignore[misc]
        return rings


def tasks_available_in(queues: Iterable[str]) -> TasksAvailable:
    """A ring for these queues, or for all if they are too many."""
    few = tuple(sorted(set(queues)))
    return TasksAvailable(few if len(few) <= MAX_QUEUES else ())


def _earlier(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)
