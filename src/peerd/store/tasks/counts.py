"""Counts of tasks that cost the same in a table of any size, and the queues that have unfinished ones.

Each count ends at a limit, and says so. Unfinished tasks of a queue are counted in the indexes that have them by their
queue. Ended ones are in an index by the time of their end only, so the latest of each status are read, and divided
among their queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotRunning
from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.schema.tables import ASIDE, nodes, processes, tasks
from peerd.store.schema.types import MYSQL, now
from peerd.store.statements import CompiledStatement, DriverConnection
from peerd.store.tasks.conditions import (
    ASIDE_KINDS,
    ONE,
    PENDING_KINDS,
    PENDING_WITHOUT_KEY,
    UNFINISHED_KINDS,
    TaskKind,
    by_index,
    is_closing_as,
    is_working,
)
from peerd.store.tasks.pages import Values, entries_behind, get_task, section_of
from peerd.store.tasks.rows import batches

MOST_COUNTED: Final = 10_000
"""Tasks of one queue and status that are counted; and ended tasks of one status, in all queues."""
MOST_JUMPS: Final = 50
"""Combinations of priority, failures, node and limit key among which the oldest pending task is searched for."""
QUEUES_AT_ONCE: Final = 200
"""Steps through an index in one statement."""


class TaskCounts(msgspec.Struct, frozen=True):
    """Tasks of one queue, or of all.

    Attributes:
        counts: of each status that occurs.
        at_least: the statuses that have these tasks or more, because counting has ended at its limit.
    """

    counts: dict[Status, int]
    at_least: frozenset[Status]


def count_unfinished(connection: Connection, queue: str, most: int = MOST_COUNTED) -> TaskCounts:
    """The tasks of a queue that have not ended, without those that are working."""
    row = connection.execute(_unfinished_statement(), {"queue": queue, "most": most}).one()
    by_kind = list(zip(UNFINISHED_KINDS, row, strict=True))
    counts: Counter[Status] = Counter()
    for kind, count in by_kind:
        counts[kind.status] += int(count)
    return TaskCounts(dict(+counts), frozenset(kind.status for kind, count in by_kind if count >= most))


def count_working(connection: Connection) -> dict[str, tuple[int, int]]:
    """The working tasks of each queue, as many as there are slots at the most; and those that queue clients hold."""
    held = sa.func.count(tasks.c.deadline_at)
    grouped = sa.select(tasks.c.queue, sa.func.count(), held).where(is_working()).group_by(tasks.c.queue)
    rows = connection.execute(by_index(grouped, PENDING_WITHOUT_KEY.index))
    return {queue: (int(count), int(reserved)) for queue, count, reserved in rows}


def count_ended(connection: Connection, status: Status, most: int = MOST_COUNTED) -> dict[str, int]:
    """The latest tasks that ended with a status, by their queue."""
    assert status in FINISHED
    order = (tasks.c.closing_at.desc(), tasks.c.id.desc())
    latest = sa.select(tasks.c.queue).where(is_closing_as(status)).order_by(*order).limit(most)
    ended = by_index(latest, "tasks_closing").subquery()
    grouped = sa.select(ended.c.queue, sa.func.count()).group_by(ended.c.queue)
    return {queue: int(count) for queue, count in connection.execute(grouped)}


def oldest_pending(connection: Connection, queue: str) -> datetime | None:
    """Since when the oldest pending task of a queue has been due; None if none is.

    Claims go by priority and failures, then by age: the oldest task is at the head of one of these combinations, and
    the search jumps from one to the next.
    """
    heads: list[datetime] = []
    moment = connection.execute(sa.select(now())).scalar_one()
    for kind in PENDING_KINDS:
        section = section_of(kind, queue)
        prefix: Values = ()
        for _ in range(MOST_JUMPS):
            found = entries_behind(connection, section, prefix, 1)
            if not found:
                break
            *head, due_at, _ = found[0]
            prefix = tuple(head)
            heads += [due_at] if due_at <= moment else []
    return min(heads, default=None)


@lru_cache(maxsize=1)
def _unfinished_statement() -> sa.Select[Any]:
    queue, most = sa.bindparam("queue", type_=sa.Text()), sa.bindparam("most", type_=sa.Integer())
    parts = [kind.first(queue, ONE.label("one"), limit=most) for kind in UNFINISHED_KINDS]
    counts = [sa.select(sa.func.count()).select_from(part.subquery()).scalar_subquery() for part in parts]
    return sa.select(*(count.label(f"count_{place}") for place, count in enumerate(counts)))


# ---------------------------------------------------------------- unfinished


def unfinished_among(connection: Connection, task_ids: Collection[int]) -> set[int]:
    """The tasks among these that have not ended; one whose row was purged has."""
    found: set[int] = set()
    has_not_ended = tasks.c.status.not_in([str(status) for status in FINISHED])
    for ids in batches(sorted(task_ids)):
        found |= set(connection.execute(sa.select(tasks.c.id).where(tasks.c.id.in_(ids), has_not_ended)).scalars())
    return found


# ---------------------------------------------------------------- names of queues


def unfinished_queues(connection: Connection) -> set[str]:
    """The queues that have pending tasks or tasks aside.

    They are found by steps through indexes, one for each queue and status, however many tasks there are.
    """
    return {name for _, names in queues_by_kind(connection) for name in names}


def queues_by_kind(connection: Connection) -> Iterator[tuple[TaskKind, list[str]]]:
    """The kinds of unfinished tasks, with the queues that have such tasks, or may have.

    Where `tasks_aside` begins with the queue, the queues of one status could be found only by reading what is aside in
    all the others: there the queues with anything aside are found once, for all statuses.
    """
    for kind in PENDING_KINDS:
        yield kind, queues_of(connection, kind)
    begins_with_status = connection.dialect.name in MYSQL
    aside = [] if begins_with_status else queues_of(connection, None)
    for kind in ASIDE_KINDS.values():
        yield kind, queues_of(connection, kind) if begins_with_status else aside


def queues_of(connection: Connection, kind: TaskKind | None) -> list[str]:
    """The queues of tasks of a kind, by name.

    None stands for all that are aside, which MySQL's index has not together.
    """
    direct, names, last = DriverConnection(connection), list[str](), ""
    if connection.dialect.name in MYSQL:
        assert kind is not None
        while len(names) < QUEUES_AT_ONCE:
            step = _next_queue_on_mysql(kind).run(direct, after=last).all()
            if not step:
                return names
            last = str(step[0][0])
            names.append(last)
        return names + [row[0] for row in _distinct_queues(kind).run(direct, after=last).all()]
    while True:
        found = [row[0] for row in _next_queues(kind).run(direct, after=last, most=QUEUES_AT_ONCE).all()]
        names += [name for name in found if name is not None]
        if len(found) < QUEUES_AT_ONCE or found[-1] is None:
            return names
        last = found[-1]


_AFTER: Final = sa.bindparam("after", type_=sa.Text())


@lru_cache(maxsize=8)
def _next_queues(kind: TaskKind | None) -> CompiledStatement:
    """A step in the index for each: the first name after the one before."""
    steps = sa.select(_first_queue(kind, _AFTER).label("queue"), ONE.label("step")).cte("steps", recursive=True)
    further = sa.select(_first_queue(kind, steps.c.queue), steps.c.step + ONE)
    going_on = (steps.c.queue.is_not(None), steps.c.step < sa.bindparam("most", type_=sa.Integer()))
    walked = steps.union_all(further.where(*going_on))
    return CompiledStatement(sa.select(walked.c.queue).order_by(walked.c.step))


def _first_queue(kind: TaskKind | None, after: sa.ColumnElement[str]) -> sa.ScalarSelect[Any]:
    if kind is not None:
        return kind.first_queue(after).scalar_subquery()
    aside = sa.select(tasks.c.queue).where(sa.text(ASIDE), tasks.c.queue > after)
    return aside.order_by(tasks.c.queue).limit(ONE).scalar_subquery()


@lru_cache(maxsize=8)
def _next_queue_on_mysql(kind: TaskKind) -> CompiledStatement:
    """A step in the index: MySQL cannot search by a name that the same statement has found."""
    return CompiledStatement(kind.first_queue(_AFTER))


@lru_cache(maxsize=8)
def _distinct_queues(kind: TaskKind) -> CompiledStatement:
    """All queues behind one. It reads all their entries, and is for many queues, which have few tasks each."""
    return CompiledStatement(by_index(sa.select(kind.queue).where(kind.behind(_AFTER)).distinct(), kind.index))


# ---------------------------------------------------------------- processes


def find_task_process(connection: Connection, task_id: int) -> tuple[str, int]:
    """The name of the node that runs a task, and the process id of the worker process.

    Raises:
        TaskNotFound: there is no such task.
        TaskNotRunning: it does not run, or a queue client holds it.
    """
    task = get_task(connection, task_id)
    if task.status is not Status.WORKING:
        raise TaskNotRunning(task_id, f"it is {task.status}, not working")
    if task.deadline_at is not None:
        raise TaskNotRunning(task_id, "a queue client holds it, whose code runs elsewhere")
    columns = nodes.c.name, processes.c.pid
    joined = sa.select(*columns).join(processes, processes.c.node_id == nodes.c.id)
    row = connection.execute(joined.where(processes.c.id == task.process_id)).first()
    if row is None:
        raise TaskNotRunning(task_id, "the process that has claimed it is not on record")
    return row.name, row.pid
