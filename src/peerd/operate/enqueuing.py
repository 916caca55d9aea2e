"""Enqueuing: one task or many, in a transaction of its own or in the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, Unpack

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.call import Call
from peerd.domain.errors import SchemaMissing
from peerd.domain.ring import Due, Ring, work_in
from peerd.domain.task import NewTask, Task
from peerd.doorbell.after_commit import ring_after_commit
from peerd.doorbell.notifier import Ringer
from peerd.operate.job import Job
from peerd.operate.operations import Ask, Colour, Group, operation, writing, writing_alone
from peerd.operate.request import EnqueueOptions, new_task, new_tasks
from peerd.store.connection.caller_session import times_in_utc
from peerd.store.connection.database_errors import lacks_a_table
from peerd.store.enqueue import enqueue
from peerd.store.schema.revisions import newest
from peerd.store.statements.autocommit import Direct

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Look = Callable[[int], Task | None]
Jobs = list[Job]


class Enqueuing(Group[Colour], Generic[Colour]):
    """What `Client` and ``client.aio`` have in common."""

    def __init__(self, colour: Colour, look: Look) -> None:
        super().__init__(colour)
        self._look = look

    @operation
    def enqueue(self, what: Call | str, **options: Unpack[EnqueueOptions]) -> Ask[Job]:
        """Write one task, and commit it.

        Args:
            what: a call, ``handler.with_args(…)``; or a queue's name.
            options: priority, start_at or start_in, finish_at or finish_in, node, max_attempts, timeout, unique,
                unique_for, limit_key, trace_context; for a bare queue also name, and body, text or bytes.

        Returns:
            its job; with ``unique``, that of the task which has the key already, and ``job.created`` is false.

        Raises:
            InvalidTask: an option is wrong; it is named, and nothing is written.
            NodeNotFound: no node has the name of ``node``.
            DatabaseAway: the task may or may not have been written; with ``unique`` it is safe to try again.
        """
        new = new_task(what, **options)
        alone = enqueue.is_one_statement(new)
        asked = writing_alone(_enqueue_alone, new, self._look) if alone else writing(_enqueue_one, new, self._look)
        return asked.and_ring(*rings_of([new]))

    @operation
    def enqueue_many(self, what: Iterable[Call | str], **options: Unpack[EnqueueOptions]) -> Ask[Jobs]:
        """Write many tasks in one transaction, all or none; their jobs in the order given.

        Args:
            what: calls, or names of queues.
            options: as for `enqueue`, for each of them. ``unique`` would make all but the first the same task.

        Raises:
            InvalidTask, NodeNotFound, DatabaseAway: as `enqueue`.
        """
        new = new_tasks(what, **options)
        return writing(_enqueue_many, new, self._look).and_ring(*rings_of(new))


def enqueue_within(connection: Connection | Session, new: NewTask, look: Look, ringer: Ringer) -> Job:
    """Write a task in the caller's transaction. It is never repeated: what is undone there, the caller knows.

    Who is woken by it is rung at after the commit, and not at all when it is rolled back.

    Raises:
        SchemaMissing: there are no tables; none are made, for the transaction is not ours.
    """
    own = connection if isinstance(connection, Connection) else _connection_of(connection)
    try:
        with times_in_utc(own) if _names_a_time(new) else nullcontext():
            job = _enqueue_one(own, new, look)
    except DBAPIError as error:
        if lacks_a_table(error):
            raise SchemaMissing(None, newest()) from error
        raise
    ring_after_commit(own, ringer, rings_of([new]))
    return job


def rings_of(new: Sequence[NewTask]) -> list[Ring]:
    """What is rung when these have been committed.

    >>> rings_of([NewTask(queue="mail"), NewTask(queue="video"), NewTask(queue="video", start_in=60.0)])
    [Due(within=60.0, at=None), Work(queues=('mail', 'video'))]
    """
    spans = [task.start_in for task in new if task.start_in]
    moments = [task.start_at.timestamp() for task in new if task.start_at is not None]
    queues = {task.queue for task in new if not task.start_in}  # a moment may have passed: the database's clock knows
    rings: list[Ring] = [Due(min(spans, default=None), min(moments, default=None))] if spans or moments else []
    if queues:
        rings.append(work_in(queues))
    return rings


def _names_a_time(new: NewTask) -> bool:
    """Whether a time will be written that is no column's default; a key has a time of its own."""
    return any(one is not None for one in (new.start_at, new.start_in, new.finish_at, new.finish_in, new.unique_key))


def _connection_of(session: Any) -> Connection:
    connection = session.connection() if callable(getattr(session, "connection", None)) else None
    if not isinstance(connection, Connection):
        raise TypeError(f"{session!r} is neither a Connection nor a Session of SQLAlchemy")
    return connection


def _enqueue_one(connection: Connection, new: NewTask, look: Look) -> Job:
    answer = enqueue.enqueue(connection, new)
    return Job(answer.id, answer.created, look)


def _enqueue_alone(connection: Direct, new: NewTask, look: Look) -> Job:
    return Job(enqueue.enqueue_directly(connection, new).id, created=True, look=look)


def _enqueue_many(connection: Connection, new: list[NewTask], look: Look) -> Jobs:
    return [Job(answer.id, answer.created, look) for answer in enqueue.enqueue_many(connection, new)]
