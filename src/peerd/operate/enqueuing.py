"""Enqueue one task or many, in a transaction of its own or in the caller's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, Unpack

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.call import Call
from peerd.domain.errors import SchemaMissing
from peerd.domain.ring import Ring, TaskScheduled, tasks_available_in
from peerd.domain.task import NewTask
from peerd.doorbell.after_commit import ring_after_commit
from peerd.doorbell.notifier import Notifier
from peerd.operate import validation
from peerd.operate.job import FindTask, Job
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.request import EnqueueOptions, new_task, new_tasks
from peerd.operate.tasks import TaskOperations
from peerd.store.connection.caller_session import utc_session
from peerd.store.connection.database_errors import is_missing_table
from peerd.store.enqueue import enqueue, idempotency
from peerd.store.schema.revisions import newest
from peerd.store.statements.autocommit import AutocommitConnection

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Jobs = list[Job]


class EnqueueOperations(OperationGroup[Mode], Generic[Mode]):
    """The enqueuing of `Client` and ``client.aio``."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(mode)
        self._find_task = TaskOperations(mode.blocking).find

    @operation
    def enqueue(
        self, what: Call | str, *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Query[Job]:
        """Write one task, and commit it.

        Args:
            what: a call, ``handler.with_args(…)``; or a queue's name.
            idempotency_key: as for `enqueue_batch`.
            options: priority, start_at or start_in, finish_at or finish_in, node, max_attempts, timeout, unique,
                unique_for, limit_key, trace_context; for a bare queue also name, and body, text or bytes.

        Returns:
            its job; with ``unique``, that of the task that has the key already, and ``job.created`` is false.

        Raises:
            InvalidTask: an option is wrong; it is named, and nothing is written.
            NodeNotFound: no node has the name of ``node``.
            DatabaseUnavailable: the task may or may not have been written; with ``unique`` or an idempotency_key it is
                safe to try again.
        """
        new = new_task(what, **options)
        if idempotency_key is not None:
            query = Query("run", _enqueue_one_once, validation.idempotency_key(idempotency_key), new, self._find_task)
        elif enqueue.is_one_statement(new):
            query = Query("run_statement", _enqueue_autocommit, new, self._find_task)
        else:
            query = Query("run", _enqueue_one, new, self._find_task)
        return query.then_ring(*rings_for([new]))

    @operation
    def enqueue_many(
        self, what: Iterable[Call | str], *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Query[Jobs]:
        """Write many tasks in one transaction, all or none; their jobs in the order given.

        Args:
            what: calls, or names of queues.
            idempotency_key: as for `enqueue_batch`.
            options: as for `enqueue`, for each of them. With ``unique`` they would all be one task.

        Raises:
            InvalidTask, NodeNotFound, DatabaseUnavailable: as `enqueue`.
        """
        return self._write_all(new_tasks(what, **options), idempotency_key)

    @operation
    def enqueue_batch(
        self, tasks: Iterable[tuple[Call | str, EnqueueOptions]], *, idempotency_key: str | None = None
    ) -> Query[Jobs]:
        """Write tasks with options of their own in one transaction, all or none; their jobs in the order given.

        Args:
            tasks: for each, what `enqueue` takes: a call or a queue's name, and its options.
            idempotency_key: a text of the caller's choice, unlike any other. For a day, a repetition with it, after a
                `DatabaseUnavailable` or a crash, writes nothing again and returns the jobs of the first time.

        Raises:
            InvalidTask, NodeNotFound, DatabaseUnavailable: as `enqueue`.
            IdempotencyKeyReused: the key came with other tasks.
        """
        return self._write_all([new_task(what, **options) for what, options in tasks], idempotency_key)

    def _write_all(self, new: list[NewTask], idempotency_key: str | None) -> Query[Jobs]:
        query = (
            Query("run", _enqueue_many, new, self._find_task)
            if idempotency_key is None
            else Query("run", _enqueue_once, validation.idempotency_key(idempotency_key), new, self._find_task)
        )
        return query.then_ring(*rings_for(new))


def enqueue_within(connection: Connection | Session, new: NewTask, find_task: FindTask, notifier: Notifier) -> Job:
    """Write a task in the caller's transaction. It is never retried, and it rings after the commit only.

    Raises:
        SchemaMissing: there are no tables; none are created in another's transaction.
    """
    sql_connection = connection if isinstance(connection, Connection) else _connection_of(connection)
    try:
        with utc_session(sql_connection) if _has_time_column(new) else nullcontext():
            job = _enqueue_one(sql_connection, new, find_task)
    except DBAPIError as error:
        if is_missing_table(error):
            raise SchemaMissing(None, newest()) from error
        raise
    ring_after_commit(sql_connection, notifier, rings_for([new]))
    return job


def rings_for(new: Sequence[NewTask]) -> list[Ring]:
    """The rings for these tasks, to be sent after their commit.

    >>> rings_for([NewTask(queue="mail"), NewTask(queue="video"), NewTask(queue="video", start_in=60.0)])
    [TaskScheduled(within=60.0, at=None), TasksAvailable(queues=('mail', 'video'))]
    """
    delays = [task.start_in for task in new if task.start_in]
    start_times = [task.start_at.timestamp() for task in new if task.start_at is not None]
    queues = {task.queue for task in new if not task.start_in}  # start_at may have passed, by the database's clock
    rings: list[Ring] = (
        [TaskScheduled(min(delays, default=None), min(start_times, default=None))] if delays or start_times else []
    )
    if queues:
        rings.append(tasks_available_in(queues))
    return rings


def _has_time_column(new: NewTask) -> bool:
    """Whether a time will be written that is no column's default; a unique key has one."""
    values = (new.start_at, new.start_in, new.finish_at, new.finish_in, new.unique_key)
    return any(value is not None for value in values)


def _connection_of(session: Any) -> Connection:
    connection = session.connection() if callable(getattr(session, "connection", None)) else None
    if not isinstance(connection, Connection):
        raise TypeError(f"{session!r} is neither a Connection nor a Session of SQLAlchemy")
    return connection


def _enqueue_one(connection: Connection, new: NewTask, find_task: FindTask) -> Job:
    enqueued = enqueue.enqueue(connection, new)
    return Job(enqueued.id, enqueued.created, find_task)


def _enqueue_autocommit(connection: AutocommitConnection, new: NewTask, find_task: FindTask) -> Job:
    return Job(enqueue.enqueue_autocommit(connection, new).id, created=True, find_task=find_task)


def _enqueue_once(connection: Connection, key: str, new: list[NewTask], find_task: FindTask) -> Jobs:
    return [Job(one.id, one.created, find_task) for one in idempotency.enqueue_once(connection, key, new)]


def _enqueue_one_once(connection: Connection, key: str, new: NewTask, find_task: FindTask) -> Job:
    return _enqueue_once(connection, key, [new], find_task)[0]


def _enqueue_many(connection: Connection, new: list[NewTask], find_task: FindTask) -> Jobs:
    return [Job(enqueued.id, enqueued.created, find_task) for enqueued in enqueue.enqueue_many(connection, new)]
