"""What actions do to tasks whose rows are locked: one, or many in the same statements.

The caller has checked that the status of each task allows the action. A running task is taken from its holder: its
lease is raised, and the attempt that ends here is recorded. Tasks of one status become tasks of one status, so there is
a statement for each status that occurs. It repeats the status; no expression in it may read the status, because MySQL
computes the values of an UPDATE from left to right, from those already written. ``mark`` are columns that are written
besides, such as the bulk action that does it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.engine import Connection

from peerd.domain.errors import UniqueKeyTaken
from peerd.domain.lifecycle import Status, TaskEvent, after
from peerd.domain.outcome import TaskTransition
from peerd.domain.task import Task
from peerd.store.enqueue import unique_keys
from peerd.store.outcomes.recording import record_attempts
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.conditions import status_is
from peerd.store.tasks.rows import (
    canceled_values,
    finish_at_ahead,
    kicked_values,
    next_lease,
    raised,
    status_literal,
    update_tasks,
)

Refusals = Mapping[int, UniqueKeyTaken]
"""The tasks that were left as they are, by their ids."""
NOTHING_LEFT = dict.fromkeys(
    ("start_at", "deadline_at", "buried_order", "finished_at", "result", "progress", "progress_note")
)
"""What a task loses that is run again."""


def cancel_tasks(connection: Connection, locked: Sequence[Task], reason: str, **mark: Any) -> None:
    """End tasks."""
    _take_from_holders(connection, locked, "withdrawn", reason)
    for status, ids in _by_status(locked):
        update_tasks(connection, ids, status_is(status), **canceled_values(reason), **mark)


def retry_tasks(connection: Connection, locked: Sequence[Task], **mark: Any) -> Refusals:
    """Let tasks run again, with all attempts, except where a younger task has the unique key."""
    refused: dict[int, UniqueKeyTaken] = {}
    for group in _groups_of_distinct_keys(locked):
        refused |= unique_keys.reacquire_keys(connection, [task for task in group if task.unique_key is not None])
        retried = [task for task in group if task.id not in refused]
        _take_from_holders(connection, retried, "retried", "to be run again")
        values = {"attempts": 0, "failures": 0, "crashes": 0, "finish_at": finish_at_ahead(), **NOTHING_LEFT}
        for status, ids in _by_status(retried):
            update_tasks(
                connection,
                ids,
                status_is(status),
                status=_target(status, TaskEvent.RETRY),
                lease=next_lease(tasks.c.lease),
                **values,
                **mark,
            )
    return refused


def move_tasks(
    connection: Connection, locked: Sequence[Task], node_id: int | None, node: str | None, **mark: Any
) -> None:
    """Pin tasks to a node, or to none."""
    _take_from_holders(connection, locked, "moved", f"moved to {node or 'any node'}")
    _write(connection, locked, TaskEvent.MOVE, node_id=node_id, deadline_at=None, **mark)


def move_tasks_to_queue(connection: Connection, locked: Sequence[Task], queue: str, **mark: Any) -> Refusals:
    """Put tasks into another queue, except those whose unique key a task has there."""
    refused: dict[int, UniqueKeyTaken] = {}
    moved: list[Task] = []
    for task in locked:
        if task.queue != queue:
            try:
                unique_keys.move_key(connection, task, queue)
                moved.append(task)
            except UniqueKeyTaken as error:
                refused[task.id] = error
    _take_from_holders(connection, moved, "moved", f"moved to queue {queue}")
    _write(connection, moved, TaskEvent.MOVE, queue=queue, deadline_at=None, **mark)
    return refused


def snooze_tasks(connection: Connection, locked: Sequence[Task], seconds: float, **mark: Any) -> None:
    """Let tasks start after so many seconds."""
    _take_from_holders(connection, locked, "snoozed", "to be run later")
    _write(connection, locked, TaskEvent.RESCHEDULE, start_at=seconds_from_now(seconds), deadline_at=None, **mark)


def change_tasks(connection: Connection, locked: Sequence[Task], values: Mapping[str, Any], **mark: Any) -> None:
    """Write columns that no status or claim depends on."""
    for status, ids in _by_status(locked):
        update_tasks(connection, ids, status_is(status), **values, **mark)


def bury_tasks(connection: Connection, locked: Sequence[Task], order: int, **mark: Any) -> None:
    """Set tasks aside."""
    _take_from_holders(connection, locked, "buried", "set aside by hand")
    values = {"buries": raised(tasks.c.buries), "buried_order": order, "deadline_at": None}
    _write(connection, locked, TaskEvent.BURY, **values, **mark)


def kick_tasks(connection: Connection, locked: Sequence[Task], **mark: Any) -> None:
    """Make tasks pending."""
    for status, ids in _by_status(locked):
        update_tasks(connection, ids, status_is(status), **kicked_values(), **mark)


def _write(connection: Connection, locked: Sequence[Task], event: TaskEvent, **values: Any) -> None:
    """Write the status after an event, and columns; of a running task the lease too."""
    for status, ids in _by_status(locked):
        lease = {"lease": next_lease(tasks.c.lease)} if status is Status.WORKING else {}
        update_tasks(connection, ids, status_is(status), status=_target(status, event), **lease, **values)


def _target(status: Status, event: TaskEvent) -> Any:
    target = after(status, event)
    assert isinstance(target, Status)
    return status_literal(target)


def _by_status(locked: Sequence[Task]) -> list[tuple[Status, list[int]]]:
    ids: dict[Status, list[int]] = defaultdict(list)
    for task in locked:
        ids[task.status].append(task.id)
    return list(ids.items())


def _groups_of_distinct_keys(locked: Sequence[Task]) -> Iterator[list[Task]]:
    """The tasks, so that no two of a group have one unique key: the first of them gets it. Mostly one group."""
    rest = list(locked)
    while rest:
        group: list[Task] = []
        later: list[Task] = []
        seen: set[tuple[str, str]] = set()
        for task in rest:
            key = None if task.unique_key is None else (task.queue, task.unique_key)
            (group if key is None or key not in seen else later).append(task)
            seen |= set() if key is None else {key}
        yield group
        rest = later


def _take_from_holders(connection: Connection, locked: Sequence[Task], label: str, reason: str) -> None:
    """Record the attempts that end here. They do not count; a reservation is no attempt."""
    running = [task for task in locked if task.status is Status.WORKING and task.deadline_at is None]
    if running:
        released = TaskTransition(event=TaskEvent.RELEASE, counted=False, label=label, error=reason)
        record_attempts(connection, running, released)
