"""What `peerd tasks watch` knows: from one look to the next, which tasks run and what became of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task


class What(StrEnum):
    """What happened to a task between two looks."""

    STARTED = "started"
    PROGRESSED = "progressed"
    ENDED = "ended"
    """done, dead or canceled."""
    RETURNED = "returned"
    """It ran, and does not any more: failure, scheduled or pending."""
    GONE = "gone"
    """Its row was deleted or purged."""


class Change(msgspec.Struct, frozen=True):
    """A thing that happened; the task as it is now, or, when its row is gone, as it was."""

    what: What
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
        self._told: set[tuple[int, int]] = set()
        """Ends that were told: tasks, and the leases that ended."""

    @property
    def followed(self) -> set[int]:
        """Ids to look at by themselves."""
        return self.unfinished | set(self.running)

    def see(self, task_id: int, task: Task | None) -> list[Change]:
        """Take note of one task; None when its row is gone."""
        before = self.running.get(task_id)
        if task is None:
            self._forget(task_id)
            return [Change(What.GONE, before)] if before is not None else []
        if task.status is Status.WORKING:
            self.running[task_id] = task
            return _progress(before, task)
        was_followed = task_id in self.followed
        self.running.pop(task_id, None)
        if task.finished:
            self._forget(task_id)
            return self.end(task) if was_followed else []
        return [Change(What.RETURNED, task)] if before is not None else []

    def end(self, task: Task) -> list[Change]:
        """Take note of a task that has ended; it is told once."""
        if (task.id, task.lease) in self._told:
            return []
        self._told.add((task.id, task.lease))
        if task.status is Status.DEAD:
            self.dead.add(task.id)
        return [Change(What.ENDED, task)]

    def _forget(self, task_id: int) -> None:
        self.running.pop(task_id, None)
        self.unfinished.discard(task_id)


def look(
    state: WatchState, working: Iterable[Task], others: Mapping[int, Task | None], ended: Iterable[Task] = ()
) -> list[Change]:
    """Take note of the tasks that run, of the followed ones that do not, and of those that ended unseen."""
    changes: list[Change] = []
    for task in sorted(working, key=lambda task: task.id):
        changes += state.see(task.id, task)
    for task_id in sorted(others):
        changes += state.see(task_id, others[task_id])
    for task in sorted(ended, key=lambda task: task.id):
        changes += state.end(task)
    return changes


def _progress(before: Task | None, task: Task) -> list[Change]:
    if before is None or before.lease != task.lease:
        return [Change(What.STARTED, task)]
    if (before.progress, before.progress_note) != (task.progress, task.progress_note):
        return [Change(What.PROGRESSED, task)]
    return []
