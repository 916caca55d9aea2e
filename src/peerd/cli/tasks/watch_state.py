"""The state of `peerd tasks watch` between two polls: which tasks run, and what happened to the others. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task


class ChangeKind(StrEnum):
    """What happened to a task between two polls."""

    STARTED = "started"
    PROGRESSED = "progressed"
    ENDED = "ended"
    """It is done, dead or canceled."""
    RETURNED = "returned"
    """It stopped running and has not ended: failure, scheduled or pending."""
    GONE = "gone"
    """Its row was deleted or purged."""


class TaskChange(msgspec.Struct, frozen=True):
    """A change; the task as it is now, or the last known one if its row is gone."""

    kind: ChangeKind
    task: Task


class WatchState:
    """The tasks that are tracked: those that run, and named ones until they have ended.

    Args:
        ids: named tasks; without any, all tasks that run are tracked.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.unfinished = set(ids)
        """Named tasks that have not ended."""
        self.dead: set[int] = set()
        """Tasks that have ended dead."""
        self.running: dict[int, Task] = {}
        """Tasks that run, as of the last poll."""
        self._reported_ends: set[tuple[int, int]] = set()
        """Tasks and their leases whose end was reported."""

    @property
    def tracked(self) -> set[int]:
        """Tasks that every poll must read."""
        return self.unfinished | set(self.running)

    def observe(self, task_id: int, task: Task | None) -> list[TaskChange]:
        """Record the current state of a task; None if its row is gone."""
        was_tracked = task_id in self.tracked
        before = self.running.pop(task_id, None)
        if task is not None and task.status is Status.WORKING:
            self.running[task_id] = task
            return _progress_changes(before, task)
        if task is None or task.finished:
            self.unfinished.discard(task_id)
        if task is not None and task.finished:
            return self.record_end(task) if was_tracked else []
        if before is None:
            return []
        return [TaskChange(ChangeKind.GONE, before) if task is None else TaskChange(ChangeKind.RETURNED, task)]

    def record_end(self, task: Task) -> list[TaskChange]:
        """Record that a task has ended; each end is reported once."""
        if (task.id, task.lease) in self._reported_ends:
            return []
        self._reported_ends.add((task.id, task.lease))
        if task.status is Status.DEAD:
            self.dead.add(task.id)
        return [TaskChange(ChangeKind.ENDED, task)]


def apply_poll(
    state: WatchState, working: Iterable[Task], others: Mapping[int, Task | None], ended: Iterable[Task] = ()
) -> list[TaskChange]:
    """Record the tasks that run, the tracked ones that do not, and those that started and ended between two polls."""
    changes: list[TaskChange] = []
    for task in sorted(working, key=lambda task: task.id):
        changes += state.observe(task.id, task)
    for task_id in sorted(others):
        changes += state.observe(task_id, others[task_id])
    for task in sorted(ended, key=lambda task: task.id):
        changes += state.record_end(task)
    return changes


def _progress_changes(before: Task | None, task: Task) -> list[TaskChange]:
    if before is None or before.lease != task.lease:
        return [TaskChange(ChangeKind.STARTED, task)]
    if (before.progress, before.progress_note) != (task.progress, task.progress_note):
        return [TaskChange(ChangeKind.PROGRESSED, task)]
    return []
