"""Enqueuing of one task or many, in a transaction of its own or in the caller's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Generic, Unpack

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.access import ActorKind, Right
from peerd.domain.errors import InvalidTask, SchemaMissing
from peerd.domain.ring import Ring, TaskScheduled, tasks_available_in
from peerd.domain.task import Call, NewTask
from peerd.doorbell.notifier import Notifier
from peerd.doorbell.ringing import ring_after_commit
from peerd.operate import validation
from peerd.operate.job import FindTask, Job
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.request import EnqueueOptions, new_task, new_tasks
from peerd.operate.tasks import TaskOperations
from peerd.runtime.enqueue_span import EnqueueSpan, begin_enqueue_span
from peerd.store import enqueue
from peerd.store.audit import State
from peerd.store.connection.database_errors import is_missing_table
from peerd.store.connection.mysql import utc_session
from peerd.store.schema.migrate import newest

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Jobs = list[Job]
MOST_IN_CALL: Final = 10_000
"""Tasks that a user, or the client of a server, enqueues in a call: the process that serves it serves others too."""


class EnqueueOperations(OperationGroup[Mode], Generic[Mode]):
    """The enqueuing of `Client` and ``client.aio``."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(mode)
        self._find_task: FindTask = TaskOperations(mode.blocking).find

    @operation(needs=Right.ENQUEUE, in_queues=True)
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
            its job; with ``unique``, the job of the task that has the key already, and ``job.created`` is false.

        Raises:
            InvalidTask: an option is wrong; it is named, and nothing is written.
            NodeNotFound: no node has the name of ``node``.
            DatabaseUnavailable: the task may or may not have been written; with ``unique`` or an idempotency_key it is
                safe to try again.
        """
        new = new_task(what, **options)
        key = None if idempotency_key is None else validation.idempotency_key(idempotency_key)
        if not self._mode.blocking.is_unrestricted:
            self._require_queue("enqueue", new.queue)
        span, [new] = self._traced([new])
        query: Query[Job]
        if key is not None:
            query = Query("run", _enqueue_one_once, key, new, self._find_task, self._idempotency_owner())
        elif self._mode.blocking.is_unrestricted and enqueue.is_one_statement(new):
            query = Query("run_short", _enqueue_alone, new, self._find_task, span)
        else:
            query = Query("run", _enqueue_one, new, self._find_task, span)
        query.then_ring(*rings_for([new])).traced_by(span)
        return query if self._mode.blocking.is_unrestricted else query.making(*_ONE_TASK)

    @operation(needs=Right.ENQUEUE, in_queues=True)
    def enqueue_many(
        self, what: Iterable[Call | str], *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Query[Jobs]:
        """Write many tasks in one transaction, all or none; their jobs in the order given.

        Args:
            what: calls, or names of queues.
            idempotency_key: as for `enqueue_batch`.
            options: as for `enqueue`, for each of them. With ``unique`` they would all be one task.

        Raises:
            InvalidTask, NodeNotFound, DatabaseUnavailable: as `enqueue`; a server takes 10,000 tasks.
        """
        return self._write_all("enqueue_many", new_tasks(what, **options), idempotency_key)

    @operation(needs=Right.ENQUEUE, in_queues=True)
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
        return self._write_all("enqueue_batch", [new_task(what, **given) for what, given in tasks], idempotency_key)

    def _write_all(self, operation_name: str, new: list[NewTask], idempotency_key: str | None) -> Query[Jobs]:
        if len(new) > MOST_IN_CALL and not self._mode.blocking.is_unrestricted:
            raise InvalidTask("tasks", f"there are {len(new):,}; give at most {MOST_IN_CALL:,} in a call")
        self._require_queue(operation_name, *{task.queue for task in new})
        key = None if idempotency_key is None else validation.idempotency_key(idempotency_key)
        span, new = self._traced(new)
        query = (
            Query("run", _enqueue_many, new, self._find_task)
            if key is None
            else Query("run", _enqueue_once, key, new, self._find_task, self._idempotency_owner())
        )
        return query.then_ring(*rings_for(new)).traced_by(span).making(*_TASKS)

    def _traced(self, new: list[NewTask]) -> tuple[EnqueueSpan | None, list[NewTask]]:
        return _traced(new) if self._mode.blocking.is_traced else (None, new)

    def _idempotency_owner(self) -> str:
        """A key is of the actor that sent it; programs share theirs."""
        actor = self._actor
        return "" if actor.kind in {ActorKind.PYTHON, ActorKind.CLI} else f"{actor.kind} {actor.name}"


def enqueue_within(connection: Connection | Session, new: NewTask, find_task: FindTask, notifier: Notifier) -> Job:
    """Write a task in the caller's transaction. It is never retried, and it rings after the commit only.

    Raises:
        SchemaMissing: there are no tables; none are created in another's transaction.
    """
    sql_connection = connection if isinstance(connection, Connection) else _connection_of(connection)
    span, [new] = _traced([new])
    try:
        with (
            nullcontext() if span is None else span.ending(),
            utc_session(sql_connection) if _has_time_column(new) else nullcontext(),
        ):
            job = _enqueue_one(sql_connection, new, find_task, span)
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


def _traced(new: list[NewTask]) -> tuple[EnqueueSpan | None, list[NewTask]]:
    """The span of the enqueue, if there is one, and the tasks with it."""
    span = begin_enqueue_span(new)
    return span, new if span is None else span.stamp(new)


def _enqueue_one(connection: Connection, new: NewTask, find_task: FindTask, span: EnqueueSpan | None) -> Job:
    enqueued = enqueue.enqueue(connection, new)
    if span is not None:
        span.message_id = enqueued.id
    return Job(enqueued.id, enqueued.created, find_task)


def _enqueue_alone(connection: Connection, new: NewTask, find_task: FindTask, span: EnqueueSpan | None) -> Job:
    enqueued = enqueue.enqueue_one(connection, new)
    if span is not None:
        span.message_id = enqueued.id
    return Job(enqueued.id, created=True, find_task=find_task)


def _enqueue_once(connection: Connection, key: str, new: list[NewTask], find_task: FindTask, owner: str) -> Jobs:
    written = enqueue.enqueue_once(connection, key, new, owner=owner)
    return [Job(one.id, one.created, find_task) for one in written]


def _enqueue_one_once(connection: Connection, key: str, new: NewTask, find_task: FindTask, owner: str) -> Job:
    return _enqueue_once(connection, key, [new], find_task, owner)[0]


def _enqueue_many(connection: Connection, new: list[NewTask], find_task: FindTask) -> Jobs:
    return [Job(enqueued.id, enqueued.created, find_task) for enqueued in enqueue.enqueue_many(connection, new)]


def _describe_job(job: Job) -> tuple[str, State]:
    return str(job.id), {"created": job.created}


def _describe_jobs(jobs: Jobs) -> tuple[str, State]:
    """The first task, and all of them as far as the entry has room."""
    return str(jobs[0].id) if jobs else "", {"count": len(jobs), "ids": [str(job.id) for job in jobs]}


_ONE_TASK: Final = ("task", _describe_job)
_TASKS: Final = ("tasks", _describe_jobs)
