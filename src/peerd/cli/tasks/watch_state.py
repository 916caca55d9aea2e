"""What `peerd tasks watch` knows: from one look to the next, which tasks run and what became of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task


class ChangeKind(StrEnum):
    """What happened to a task between two looks."""

    STARTED = "started"
    PROGRESSED = "progressed"
    ENDED = "ended"
    """done, dead or canceled."""
    RETURNED = "returned"
    """It ran, and does not any more: failure, scheduled or pending."""
    GONE = "gone"
    """Its row was deleted or purged."""


class TaskChange(msgspec.Struct, frozen=True):
    """A thing that happened; the task as it is now, or, when its row is gone, as it was."""

    kind: ChangeKind
    task: Task


class WatchState:
    """The tasks that are followed: those that run, and those that were named until they have ended.

    Args:
        ids: tasks to follow; without any, whatever runs.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.unfinished = set(ids)
        """Named tasks that have not ended."""
        self.dead: set[int] = set()
        """Tasks that were seen to end dead."""
        self.running: dict[int, Task] = {}
        """Tasks that run, as they were last seen."""
        self._reported_ends: set[tuple[int, int]] = set()
        """Ends that were told: tasks, and the leases that ended."""

    @property
    def tracked(self) -> set[int]:
        """Ids to look at by themselves."""
        return self.unfinished | set(self.running)

    def observe(self, task_id: int, task: Task | None) -> list[TaskChange]:
        """Take note of one task; None when its row is gone."""
        before = self.running.get(task_id)
        if task is None:
            self._untrack(task_id)
            return [TaskChange(ChangeKind.GONE, before)] if before is not None else []
        if task.status is Status.WORKING:
            self.running[task_id] = task
            return _progress_changes(before, task)
        was_tracked = task_id in self.tracked
        self.running.pop(task_id, None)
        if task.finished:
            self._untrack(task_id)
            return self.record_end(task) if was_tracked else []
        return [TaskChange(ChangeKind.RETURNED, task)] if before is not None else []

    def record_end(self, task: Task) -> list[TaskChange]:
        """Take note of a task that has ended; it is told once."""
        if (task.id, task.lease) in self._reported_ends:
            return []
        self._reported_ends.add((task.id, task.lease))
        if task.status is Status.DEAD:
            self.dead.add(task.id)
        return [TaskChange(ChangeKind.ENDED, task)]

    def _untrack(self, task_id: int) -> None:
        self.running.pop(task_id, None)
        self.unfinished.discard(task_id)


def apply_poll(
    state: WatchState, working: Iterable[Task], others: Mapping[int, Task | None], ended: Iterable[Task] = ()
) -> list[TaskChange]:
    """Take note of the tasks that run, of the followed ones that do not, and of those that ended unseen."""
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
