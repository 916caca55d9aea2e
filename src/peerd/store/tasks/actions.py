"""Actions on a task. Each takes effect at once, on a running task too.

An action on a running task invalidates the claim. The holder learns of it by a ring, or at its next touch or refused
write; until then the handler runs on, and nothing of it is written.

Rows are locked before they are written, one or many in the same statements. The caller has checked that the status of
each task allows the action. A running task is taken from its holder: its lease is raised, and the attempt that ends
here is recorded. Tasks of one status become tasks of one status, so there is a statement for each status that occurs.
It repeats the status; no expression in it may read the status, because MySQL computes the values of an UPDATE from left
to right, from those already written. ``mark`` are columns that are written besides, such as the bulk action that does
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

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
NOTHING_LEFT = dict.fromkeys(
    ("start_at", "deadline_at", "buried_order", "finished_at", "result", "progress", "progress_note")
)
"""What a task loses that is run again."""


def cancel(
    connection: Connection, task_id: int, reason: str = "canceled by hand", *, only: TaskConditions | None = None
) -> None:
    """End a task that has not ended.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended already.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.CANCEL)
    cancel_tasks(connection, [task], reason)


def retry(connection: Connection, task_id: int, *, only: TaskConditions | None = None) -> None:
    """Let a task run again at once, with all its attempts ahead, from any status.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is pending already, or waits for others.
        UniqueKeyTaken: a younger task holds its unique key now.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.RETRY)
    _raise_refusal(retry_tasks(connection, [task]))


def move(connection: Connection, task_id: int, node: str | None, *, only: TaskConditions | None = None) -> None:
    """Give a task to a node, or to any (None). A running one is taken from its holder and made pending.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        NodeNotFound: no node has this name.
        IllegalTransition: it has ended.
    """
    node_id = None if node is None else get_node_id(connection, node)
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.MOVE)
    move_tasks(connection, [task], node_id, node)


def move_to_queue(connection: Connection, task_id: int, queue: str, *, only: TaskConditions | None = None) -> None:
    """Put a task into another queue, with its unique key. A running one is taken from its holder and made pending.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended.
        UniqueKeyTaken: another task has its unique key in that queue.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.MOVE)
    _raise_refusal(move_tasks_to_queue(connection, [task], queue))


def snooze(connection: Connection, task_id: int, seconds: float, *, only: TaskConditions | None = None) -> None:
    """Let a task start after some seconds. A running one is taken from its holder.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended, is buried, or waits for other tasks.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.RESCHEDULE)
    snooze_tasks(connection, [task], seconds)


def change(connection: Connection, task_id: int, *, only: TaskConditions | None = None, **values: object) -> None:
    """Write columns of a task that neither runs nor has ended, and that no status or claim depends on.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is running, or has ended.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.CHANGE)
    change_tasks(connection, [task], values)


def bury(connection: Connection, task_id: int, order: int, *, only: TaskConditions | None = None) -> None:
    """Set a task aside, which has not ended: nothing claims it until it is kicked or retried.

    ``order`` is microseconds of a clock: queue clients kick what was buried first.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended, or is buried already.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.BURY)
    bury_tasks(connection, [task], order)


def kick(connection: Connection, task_id: int, *, only: TaskConditions | None = None) -> None:
    """Make a task pending that is buried, or waits for its time. Its attempts stay as they are.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is neither buried, nor scheduled, nor a failure.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.KICK)
    kick_tasks(connection, [task])


def delete(connection: Connection, task_id: int, *, only: TaskConditions | None = None) -> None:
    """Delete a task, its attempts and its log lines. The holder of a running one is refused its next write.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.DELETE)
    delete_rows(connection, [task])


def delete_rows(connection: Connection, locked: list[Task]) -> int:
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


def _lock_existing(connection: Connection, task_id: int, only: TaskConditions | None) -> Task:
    """The task, locked, if it still meets the filter by which it was found."""
    conditions = (only or TaskConditions()).conditions()
    locked = lock_tasks(connection, [task_id], *conditions) if 0 < task_id < 2**63 else []
    if not locked:
        raise TaskNotFound(task_id)
    return locked[0]


def _raise_refusal(refused: Refusals) -> None:
    for error in refused.values():
        raise error


# ---------------------------------------------------------------- effects


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
