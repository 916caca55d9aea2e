"""What people do to a task: cancel, retry, move, delete. Each takes effect at once, on a running task too.

They raise the lease. The holder of a running task learns of it at its next touch or refused write; until then it works
for nothing, and can change nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Event, Status, after
from peerd.domain.outcome import ERROR_LIMIT, cut
from peerd.domain.task import Task
from peerd.domain.task_transition import Verdict
from peerd.store.enqueue import unique_keys
from peerd.store.nodes.nodes import node_id_of
from peerd.store.outcomes.recording import record_attempts
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import attempts, tasks
from peerd.store.statements.token import new_token
from peerd.store.tasks.read import Filter
from peerd.store.tasks.rows import becomes, lock_task, raised_lease, update_tasks


def cancel(
    connection: Connection, task_id: int, reason: str = "canceled by hand", *, only: Filter | None = None
) -> None:
    """End a task that has not ended.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it has ended already.
    """
    task = _locked(connection, task_id, only)
    status = _status_after(task, Event.CANCEL)
    _take_from_holder(connection, task, "withdrawn", reason)
    error = cut(reason, ERROR_LIMIT)
    values = {"status": becomes(status), "lease": raised_lease(task.lease), "finished_at": now(), "error": error}
    update_tasks(connection, [task_id], **values)


def retry(connection: Connection, task_id: int, *, only: Filter | None = None) -> None:
    """Let a task run again at once, with all its attempts before it, whatever became of it.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        IllegalTransition: it is pending already, or waits for others.
        KeyTaken: it has a unique key that a younger task holds now.
    """
    task = _locked(connection, task_id, only)
    status = _status_after(task, Event.RETRY)
    unique_keys.take_again(connection, task, new_token())
    _take_from_holder(connection, task, "retried", "to be run again")
    still_ahead = sa.case((tasks.c.finish_at > now(), tasks.c.finish_at), else_=sa.null())
    update_tasks(
        connection,
        [task_id],
        status=becomes(status),
        lease=raised_lease(task.lease),
        attempts=0,
        crashes=0,
        start_at=None,
        finish_at=still_ahead,
        finished_at=None,
        result=None,
        progress=None,
        progress_note=None,
    )


def move(connection: Connection, task_id: int, node: str | None, *, only: Filter | None = None) -> None:
    """Give a task to a node, or to any (None). A running one is taken from its holder and made pending.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
        NodeNotFound: no node has this name.
        IllegalTransition: it has ended.
    """
    node_id = None if node is None else node_id_of(connection, node)
    task = _locked(connection, task_id, only)
    status = _status_after(task, Event.MOVE)
    _take_from_holder(connection, task, "moved", f"moved to {node or 'any node'}")
    lease = raised_lease(task.lease) if task.status is Status.WORKING else task.lease
    update_tasks(connection, [task_id], status=becomes(status), node_id=node_id, lease=lease)


def delete(connection: Connection, task_id: int, *, only: Filter | None = None) -> None:
    """Delete a task and its attempts. The holder of a running one is refused its next write.

    Raises:
        TaskNotFound: it is not there, or not one of ``only``.
    """
    task = _locked(connection, task_id, only)
    after(task.status, Event.DELETE)
    delete_rows(connection, [task])


def delete_rows(connection: Connection, doomed: list[Task]) -> None:
    """Delete tasks whose rows are locked, their attempts, and the keys that end with them."""
    ids = [task.id for task in doomed]
    unique_keys.forget(
        connection, [(task.queue, task.unique_key) for task in doomed if task.unique_key is not None], ids
    )
    connection.execute(sa.delete(attempts).where(attempts.c.task_id.in_(ids)))
    connection.execute(sa.delete(tasks).where(tasks.c.id.in_(sorted(ids))))


def _locked(connection: Connection, task_id: int, only: Filter | None) -> Task:
    """The task, locked, if it is as whoever found it has seen it."""
    conditions = (only or Filter()).conditions()
    task = lock_task(connection, task_id, *conditions) if 0 < task_id < 2**63 else None
    if task is None:
        raise TaskNotFound(task_id)
    return task


def _status_after(task: Task, event: Event) -> Status:
    status = after(task.status, event)
    assert isinstance(status, Status)
    return status


def _take_from_holder(connection: Connection, task: Task, label: str, reason: str) -> None:
    """Record the attempt that ends here, if the task is running. It does not count."""
    if task.status is Status.WORKING:
        event = Event.RELEASE
        record_attempts(connection, [task], Verdict(event=event, counted=False, label=label, error=reason))
