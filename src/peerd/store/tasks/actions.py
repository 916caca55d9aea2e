"""Actions on tasks. Each takes effect at once, on a running task too.

An action on a running task invalidates the claim. The holder learns of it by a ring, or at its next touch or refused
write; until then the handler runs on, and nothing of it is written.

Rows are locked before they are written, one or many in the same statements. A running task is taken from its holder:
its lease is raised, and the attempt that ends here is recorded. Tasks of one status become tasks of one status, so
there is a statement for each status that occurs. It repeats the status; no expression in it may read the status,
because MySQL computes the values of an UPDATE from left to right, from those already written. ``mark`` are columns that
are written besides, such as the bulk action that does it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain import bulk
from peerd.domain.errors import TaskNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import Status, TaskEvent, after
from peerd.domain.outcome import TaskTransition
from peerd.domain.task import Task
from peerd.store import unique_keys
from peerd.store.nodes import get_node_id
from peerd.store.outcomes import record_attempts
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.conditions import status_is
from peerd.store.tasks.filters import TaskConditions
from peerd.store.tasks.log_lines import delete_lines
from peerd.store.tasks.rows import (
    canceled_values,
    finish_at_ahead,
    kicked_values,
    lock_tasks,
    next_lease,
    raised,
    status_literal,
    update_tasks,
)

Refusals = Mapping[int, UniqueKeyTaken]
"""The tasks that were left as they are, by their ids."""
NOTHING_LEFT: Final = dict.fromkeys(
    ("start_at", "deadline_at", "buried_order", "finished_at", "result", "progress", "progress_note")
)
"""What a task loses that is run again."""


def act_on_task(
    connection: Connection, task_id: int, action: bulk.TaskAction, *, only: TaskConditions | None = None
) -> None:
    """Do something to one task.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        NodeNotFound: no node has the name of the action.
        IllegalTransition: its status does not allow the action.
        UniqueKeyTaken: another task holds its unique key.
    """
    conditions = (only or TaskConditions()).conditions()
    locked = lock_tasks(connection, [task_id], *conditions) if 0 < task_id < 2**63 else []
    if not locked:
        raise TaskNotFound(task_id)
    after(locked[0].status, bulk.event_of(action))
    for refusal in act(connection, action, locked).values():
        raise refusal


def act(connection: Connection, action: bulk.TaskAction, locked: Sequence[Task], **mark: Any) -> Refusals:
    """Do something to tasks whose rows are locked, and whose statuses allow it; those that were refused.

    Raises:
        NodeNotFound: no node has the name of the action.
    """
    label, reason, values = "", "", dict[str, Any]()
    match action:
        case bulk.BulkRetry():
            return _retry(connection, locked, **mark)
        case bulk.BulkMoveToQueue(queue):
            return _move_to_queue(connection, locked, queue, **mark)
        case bulk.BulkDelete():
            delete_rows(connection, locked)
            return {}
        case bulk.BulkCancel(reason):
            label, values = "withdrawn", canceled_values(reason)
        case bulk.BulkSnooze(seconds):
            label, reason = "snoozed", "to be run later"
            values = {"start_at": seconds_from_now(seconds), "deadline_at": None}
        case bulk.BulkMove(node):
            label, reason = "moved", f"moved to {node or 'any node'}"
            values = {"node_id": None if node is None else get_node_id(connection, node), "deadline_at": None}
        case bulk.BulkBury():
            label, reason = "buried", "set aside by hand"
            order = time.time_ns() // 1000  # queue clients kick what was buried first
            values = {"buries": raised(tasks.c.buries), "buried_order": order, "deadline_at": None}
        case bulk.BulkChange():
            values = changed_values(action)
        case bulk.BulkKick():
            values = kicked_values()
    _take_from_holders(connection, locked, label, reason)
    _write(connection, locked, bulk.event_of(action), **values, **mark)
    return {}


def changed_values(change: bulk.BulkChange) -> dict[str, object]:
    """The columns that a change writes.

    >>> changed_values(bulk.BulkChange(priority=20))
    {'priority': 20}
    """
    values: dict[str, object] = {} if change.priority is None else {"priority": change.priority}
    return values if change.body is None else values | {"body": change.body, "body_bytes": None}


def delete_rows(connection: Connection, locked: Sequence[Task]) -> int:
    """Delete tasks whose rows are locked, their attempts and log lines, and the keys that end with them.

    Returns the number of tasks and log lines.
    """
    ids = [task.id for task in locked]
    unique_keys.delete_keys(
        connection, [(task.queue, task.unique_key) for task in locked if task.unique_key is not None], ids
    )
    connection.execute(sa.delete(attempts).where(attempts.c.task_id.in_(ids)))
    lines = delete_lines(connection, ids)
    connection.execute(sa.delete(tasks).where(tasks.c.id.in_(sorted(ids))))
    return len(ids) + lines


def _retry(connection: Connection, locked: Sequence[Task], **mark: Any) -> Refusals:
    """Let tasks run again, with all attempts, except where a younger task has the unique key."""
    refused: dict[int, UniqueKeyTaken] = {}
    for group in _groups_of_distinct_keys(locked):
        refused |= unique_keys.reacquire_keys(connection, [task for task in group if task.unique_key is not None])
        retried = [task for task in group if task.id not in refused]
        _take_from_holders(connection, retried, "retried", "to be run again")
        values = {"attempts": 0, "failures": 0, "crashes": 0, "finish_at": finish_at_ahead(), **NOTHING_LEFT}
        _write(connection, retried, TaskEvent.RETRY, lease=next_lease(tasks.c.lease), **values, **mark)
    return refused


def _move_to_queue(connection: Connection, locked: Sequence[Task], queue: str, **mark: Any) -> Refusals:
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


def _write(connection: Connection, locked: Sequence[Task], event: TaskEvent, **values: Any) -> None:
    """Write the status after an event, and columns; of a running task the lease too."""
    for status, ids in _by_status(locked):
        target = after(status, event)
        assert isinstance(target, Status)
        lease = {"lease": next_lease(tasks.c.lease)} if status is Status.WORKING else {}
        written = {"status": status_literal(target), **lease, **values}
        update_tasks(connection, ids, status_is(status), **written)


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
