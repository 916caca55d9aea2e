"""Looking at jobs without reserving them, and figures of jobs and tubes. All of it only reads.

Counts are made by walking through the jobs of a tube in an index: of a million, that takes a tenth of a second, and
whoever asks often keeps the result for a while.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.jobs.reserving import to_bytes
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.schema.types import MYSQL, now
from peerd.store.statements import CompiledStatement, DriverConnection, list_parameter, run_union
from peerd.store.take.eligibility import MAX_QUEUES, is_startable, queue_table
from peerd.store.tasks.conditions import (
    ASIDE_KINDS,
    ONE,
    PENDING_KINDS,
    UNFINISHED_KINDS,
    TaskKind,
    by_index,
    is_working,
)
from peerd.store.tasks.counts import queues_by_kind
from peerd.store.tasks.pages import entries_behind, section_of
from peerd.store.tasks.rows import batches, to_whole_number


class JobState(StrEnum):
    """The states of a job."""

    READY = "ready"
    DELAYED = "delayed"
    RESERVED = "reserved"
    BURIED = "buried"


class FoundJob(NamedTuple):
    """A job that was looked at and not reserved."""

    id: int
    body: bytes


class JobStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a job; times are in whole seconds.

    Attributes:
        age: since it was put.
        delay: the last one that was given.
        ttr: None for a task that no queue client has put or reserved.
        time_left: until its deadline, or until it is ready; 0 in other states.
    """

    id: int
    queue: str
    state: JobState
    priority: int
    age: int
    delay: int
    ttr: int | None
    time_left: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int


class TubeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs in each state, of one tube or of all; urgent ones are among the ready ones."""

    urgent: int = 0
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0

    @property
    def jobs(self) -> int:
        """The number of jobs in any state."""
        return self.ready + self.reserved + self.delayed + self.buried


URGENT_ABOVE: Final = 65_536 - 1024
"""Jobs of a higher priority than this are urgent: those whose pri is below 1024."""
STATES: Final = {
    Status.PENDING: JobState.READY,
    Status.SCHEDULED: JobState.DELAYED,
    Status.FAILURE: JobState.DELAYED,
    Status.WAITING: JobState.DELAYED,
    Status.WORKING: JobState.RESERVED,
    Status.BURIED: JobState.BURIED,
}
"""The states of jobs; tasks of other statuses have ended."""
COUNTERS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")
BODIES: Final = (tasks.c.id, tasks.c.body, tasks.c.body_bytes)
DELAYED: Final = (Status.SCHEDULED, Status.FAILURE, Status.WAITING)


def job_statistics(connection: Connection, job_id: int) -> JobStatistics | None:
    """The figures of a job; None if there is none, or if it has ended."""
    if not 0 < job_id < 2**63:
        return None
    counters = [tasks.c[name] for name in COUNTERS]
    columns = (tasks.c.queue, tasks.c.status, tasks.c.priority, tasks.c.ttr, tasks.c.delay, tasks.c.created_at)
    times = (tasks.c.due_at, tasks.c.deadline_at, now().label("now"))
    row = connection.execute(sa.select(*columns, *times, *counters).where(tasks.c.id == job_id)).first()
    state = None if row is None else STATES.get(Status(row.status))
    if row is None or state is None:
        return None
    if state is JobState.READY and row.due_at > row.now:
        state = JobState.DELAYED
    ends_at = {JobState.RESERVED: row.deadline_at, JobState.DELAYED: row.due_at}.get(state)
    return JobStatistics(
        id=job_id,
        queue=row.queue,
        state=state,
        priority=to_whole_number(row.priority),
        age=_whole_seconds(row.created_at, row.now),
        delay=to_whole_number(row.delay),
        ttr=None if row.ttr is None else to_whole_number(row.ttr),
        time_left=0 if ends_at is None else whole_seconds_left(row.now, ends_at),
        **{name: to_whole_number(getattr(row, name)) for name in COUNTERS},
    )


def has_jobs(connection: Connection, queue: str) -> bool:
    """Whether a tube has jobs, in any state."""
    first = [kind.first(queue, tasks.c.id) for kind in UNFINISHED_KINDS]
    first.append(by_index(sa.select(tasks.c.id).where(is_working(), tasks.c.queue == queue).limit(1), "tasks_claim"))
    return any(connection.execute(one).first() is not None for one in first)


def tubes_with_jobs(connection: Connection) -> list[str]:
    """The queues that have jobs, in about the order in which they got them: by the id of a job at the head of each.

    The names are found by steps through indexes, one for each tube and state, however many jobs there are; only those
    of reserved jobs are found by reading all that are reserved.
    """
    held = sa.select(tasks.c.queue, sa.func.min(tasks.c.id)).where(is_working()).group_by(tasks.c.queue)
    first: dict[str, int] = {row[0]: row[1] for row in connection.execute(by_index(held, "tasks_claim"))}
    for kind, names in queues_by_kind(connection):
        for tubes in batches(names, rows=MAX_QUEUES):
            for queue, task_id in _heads_of_tubes(connection, kind, tubes):
                if task_id is not None:
                    first[queue] = min(task_id, first.get(queue, task_id))
    return sorted(first, key=lambda queue: (first[queue], queue))


# ---------------------------------------------------------------- counts


def count_jobs(connection: Connection, queue: str | None) -> TubeCounts:
    """The number of jobs of a tube, or of all tubes, in each state."""
    urgent = ready = ahead = 0
    for kind in PENDING_KINDS:
        row = connection.execute(_count_pending(kind, queue)).one()
        urgent, ready, ahead = urgent + int(row[0] or 0), ready + int(row[1] or 0), ahead + int(row[2] or 0)
    is_reserved = is_working() if queue is None else sa.and_(is_working(), tasks.c.queue == queue)
    counted = [("tasks_claim", is_reserved), *((kind.index, _is_in(kind, queue)) for kind in ASIDE_KINDS.values())]
    counts = [
        by_index(sa.select(sa.func.count()).select_from(tasks).where(condition), index).scalar_subquery()
        for index, condition in counted
    ]
    reserved, *aside = connection.execute(sa.select(*counts)).one()
    numbers = dict(zip(ASIDE_KINDS, aside, strict=True))
    buried = numbers.pop(Status.BURIED)
    delayed = ahead + sum(numbers.values())
    return TubeCounts(urgent=urgent, ready=ready, reserved=reserved, delayed=delayed, buried=buried)


def _count_pending(kind: TaskKind, queue: str | None) -> sa.Select[Any]:
    """Urgent ones, ready ones, and those whose start is ahead: rows that SQL by hand has written."""
    is_ahead = tasks.c.due_at > now()
    is_urgent = sa.and_(tasks.c.claim_rank < -URGENT_ABOVE, sa.not_(is_ahead))
    counts = [sa.func.sum(sa.case((test, 1), else_=0)) for test in (is_urgent, sa.not_(is_ahead), is_ahead)]
    return by_index(sa.select(*counts).where(_is_in(kind, queue)), kind.index)


def _is_in(kind: TaskKind, queue: str | None) -> sa.ColumnElement[bool]:
    return kind.behind() if queue is None else kind.of(queue)


def _whole_seconds(earlier: datetime, later: datetime) -> int:
    return max(0, int((later - earlier).total_seconds()))


def whole_seconds_left(moment: datetime, end: datetime) -> int:
    """The seconds from a moment to an end, rounded down; the moment has always begun, however coarse the clock is.

    >>> from datetime import timedelta
    >>> end = datetime(2026, 1, 1)
    >>> [whole_seconds_left(end - timedelta(seconds=left), end) for left in (10, 9.5, 1, 0.5, 0, -1)]
    [9, 9, 0, 0, 0, 0]
    """
    return max(0, math.ceil((end - moment).total_seconds()) - 1)


# ---------------------------------------------------------------- heads of tubes


def _heads_of_tubes(connection: Connection, kind: TaskKind, tubes: Sequence[str]) -> Sequence[Sequence[Any]]:
    """Each tube, and the id of its first job in the index."""
    if connection.dialect.name in MYSQL:
        return run_union(DriverConnection(connection), [(_head_of_tube(kind), {"queue": tube}) for tube in tubes])
    heads, listed = _heads_in_table(connection.dialect.name, kind), list_parameter(connection.dialect, tubes)
    return heads.run(DriverConnection(connection), queues=listed).all()


@lru_cache(maxsize=8)
def _head_of_tube(kind: TaskKind) -> CompiledStatement:
    queue = sa.bindparam("queue", type_=sa.String())
    return CompiledStatement(kind.first(queue, queue, tasks.c.id))


@lru_cache(maxsize=16)
def _heads_in_table(dialect: str, kind: TaskKind) -> CompiledStatement:
    tube = queue_table(dialect).subquery("tube")
    head = kind.first(tube.c.queue, tasks.c.id)
    return CompiledStatement(sa.select(tube.c.queue, head.correlate(tube).scalar_subquery()))


# ---------------------------------------------------------------- peeking


def peek(connection: Connection, job_id: int) -> FoundJob | None:
    """The job of this id, in any state; None if there is none, or if it has ended."""
    if not 0 < job_id < 2**63:
        return None
    ended = [str(status) for status in FINISHED]
    return _found(connection, sa.select(*BODIES).where(tasks.c.id == job_id, tasks.c.status.not_in(ended)))


def peek_ready(connection: Connection, queue: str) -> FoundJob | None:
    """The next job of a tube, paused or not, and on whichever node it may be reserved.

    Among jobs of the same priority, those with limit keys are in the order of their keys.
    """
    heads: list[tuple[Any, ...]] = []
    for kind in PENDING_KINDS:
        section = msgspec.structs.replace(section_of(kind, queue), condition=sa.and_(kind.of(queue), is_startable()))
        lane: tuple[Any, ...] = ()
        while head := entries_behind(connection, section, lane, 1, tasks.c.lane, *CLAIM_ORDER):
            lane = head[0][:1]
            heads.append(head[0][1:])
    return peek(connection, int(min(heads)[-1])) if heads else None


def peek_delayed(connection: Connection, queue: str) -> FoundJob | None:
    """The delayed job of a tube that is ready soonest."""
    heads = [ASIDE_KINDS[status].first(queue, tasks.c.due_at, *BODIES) for status in DELAYED]
    rows = [row for head in heads for row in connection.execute(head).all()]
    first = min(rows, key=lambda row: (row.due_at, row.id), default=None)
    return None if first is None else _to_found(first[1:])


def peek_buried(connection: Connection, queue: str) -> FoundJob | None:
    """The job of a tube that was buried first."""
    return _found(connection, ASIDE_KINDS[Status.BURIED].first(queue, *BODIES))


def _found(connection: Connection, statement: sa.Select[Any]) -> FoundJob | None:
    row = connection.execute(statement).first()
    return None if row is None else _to_found(row)


def _to_found(row: Sequence[Any]) -> FoundJob:
    task_id, body, body_bytes = row
    return FoundJob(task_id, to_bytes(body, body_bytes))


# ---------------------------------------------------------------- how full a queue is


def count_unfinished_up_to(connection: Connection, queue: str, most: int) -> int:
    """The number of tasks of a queue that have not ended; ``most`` if there are so many or more.

    It reads at most ``most`` entries of each of the indexes that have unfinished tasks by their queue, and those of the
    running tasks of all queues, however large the table is. See `peerd.gateway.puts` for asking often.
    """
    return int(connection.execute(_count_statement(), {"queue": queue, "most": most}).scalar_one())


@lru_cache(maxsize=1)
def _count_statement() -> sa.Select[Any]:
    queue, most = sa.bindparam("queue", type_=sa.Text()), sa.bindparam("most", type_=sa.Integer())
    one = ONE.label("one")
    working = by_index(sa.select(one).where(is_working(), tasks.c.queue == queue), "tasks_claim").limit(most)
    found = [*(kind.first(queue, one, limit=most) for kind in UNFINISHED_KINDS), working]
    parts = [sa.select(part.subquery(f"part_{place}")) for place, part in enumerate(found)]
    return sa.select(sa.func.count()).select_from(sa.union_all(*parts).limit(most).subquery("unfinished"))
