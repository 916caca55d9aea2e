"""Actions on a task. Each takes effect at once, on a running task too.

An action on a running task invalidates the claim. The holder learns of it by a ring, or at its next touch or refused
write; until then the handler runs on, and nothing of it is written.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import TaskEvent, after
from peerd.domain.task import Task
from peerd.store.enqueue import unique_keys
from peerd.store.nodes.nodes import get_node_id
from peerd.store.schema.tables import attempts, tasks
from peerd.store.tasks import effects
from peerd.store.tasks.filters import TaskConditions
from peerd.store.tasks.log_lines import delete_lines
from peerd.store.tasks.rows import lock_tasks


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
    effects.cancel_tasks(connection, [task], reason)


def retry(connection: Connection, task_id: int, *, only: TaskConditions | None = None) -> None:
    """Let a task run again at once, with all its attempts ahead, whatever its status.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is pending already, or waits for others.
        UniqueKeyTaken: a younger task holds its unique key now.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.RETRY)
    _raise_refusal(effects.retry_tasks(connection, [task]))


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
    effects.move_tasks(connection, [task], node_id, node)


def move_to_queue(connection: Connection, task_id: int, queue: str, *, only: TaskConditions | None = None) -> None:
    """Put a task into another queue, with its unique key. A running one is taken from its holder and made pending.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended.
        UniqueKeyTaken: another task has its unique key in that queue.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.MOVE)
    _raise_refusal(effects.move_tasks_to_queue(connection, [task], queue))


def snooze(connection: Connection, task_id: int, seconds: float, *, only: TaskConditions | None = None) -> None:
    """Let a task start after some seconds. A running one is taken from its holder.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended, is buried, or waits for other tasks.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.RESCHEDULE)
    effects.snooze_tasks(connection, [task], seconds)


def change(connection: Connection, task_id: int, *, only: TaskConditions | None = None, **values: object) -> None:
    """Write columns of a task that neither runs nor has ended, and that no status or claim depends on.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is running, or has ended.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.CHANGE)
    effects.change_tasks(connection, [task], values)


def bury(connection: Connection, task_id: int, order: int, *, only: TaskConditions | None = None) -> None:
    """Set a task aside, which has not ended: nothing claims it until it is kicked or retried.

    ``order`` is microseconds of a clock: queue clients kick what was buried first.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended, or is buried already.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.BURY)
    effects.bury_tasks(connection, [task], order)


def kick(connection: Connection, task_id: int, *, only: TaskConditions | None = None) -> None:
    """Make a task pending that is buried, or waits for its time. Its attempts stay as they are.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is neither buried, nor scheduled, nor a failure.
    """
    task = _lock_existing(connection, task_id, only)
    after(task.status, TaskEvent.KICK)
    effects.kick_tasks(connection, [task])


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


def _raise_refusal(refused: effects.Refusals) -> None:
    for error in refused.values():
        raise error
