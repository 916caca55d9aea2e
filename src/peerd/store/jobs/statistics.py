"""Looking at jobs without reserving them, and figures of jobs and tubes. All of it only reads.

Counts are made by walking through the jobs of a tube in an index: of a million, that takes a tenth of a second, and
whoever asks often keeps the result for a while.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.jobs.kicking import select_aside
from peerd.store.jobs.reserving import to_bytes
from peerd.store.jobs.types import URGENT_ABOVE, FoundJob, JobState, JobStatistics, TubeCounts
from peerd.store.schema.tables import ASIDE, CLAIM_ORDER, KEYED_CLAIM_ORDER, tasks
from peerd.store.schema.types import MYSQL, now
from peerd.store.statements import CompiledStatement, DriverConnection, list_parameter, run_union
from peerd.store.take.eligibility import MAX_QUEUES, is_startable, queue_table
from peerd.store.tasks.conditions import (
    PENDING_WITH_KEY,
    PENDING_WITHOUT_KEY,
    PendingKind,
    aside_order,
    by_index,
    is_aside,
    is_working,
)
from peerd.store.tasks.pages import entries_behind, pending_section
from peerd.store.tasks.rows import batches, to_whole_number

Part = PendingKind | Status
"""Jobs that one index leads to: a kind of pending ones, or those aside in a status."""

STATES: Final = {
    Status.PENDING: JobState.READY,
    Status.SCHEDULED: JobState.DELAYED,
    Status.FAILURE: JobState.DELAYED,
    Status.WAITING: JobState.DELAYED,
    Status.WORKING: JobState.RESERVED,
    Status.BURIED: JobState.BURIED,
}
"""The states of jobs; tasks of other statuses have ended."""
ASIDE_STATUSES: Final = tuple(
    status for status, state in STATES.items() if state in (JobState.DELAYED, JobState.BURIED)
)
PENDING_KINDS: Final = (PENDING_WITHOUT_KEY, PENDING_WITH_KEY)
COUNTERS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")
TUBES_AT_ONCE: Final = 200
"""Steps through an index in one statement."""
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


def tube_counts(connection: Connection, queue: str) -> TubeCounts:
    """The number of jobs of a tube in each state."""
    return _count(connection, queue)


def cluster_counts(connection: Connection) -> TubeCounts:
    """The number of jobs of all tubes in each state."""
    return _count(connection, None)


def has_jobs(connection: Connection, queue: str) -> bool:
    """Whether a tube has jobs, in any state."""
    name = sa.literal(queue)
    first = [by_index(sa.select(tasks.c.id).where(kind.of(name)), kind.index) for kind in PENDING_KINDS]
    first += [by_index(sa.select(tasks.c.id).where(is_aside(one, name)), "tasks_aside") for one in ASIDE_STATUSES]
    first.append(by_index(sa.select(tasks.c.id).where(is_working(), tasks.c.queue == name), "tasks_claim"))
    return any(connection.execute(one.limit(1)).first() is not None for one in first)


def tubes_with_jobs(connection: Connection) -> list[str]:
    """The queues that have jobs, in about the order in which they got them: by the id of a job at the head of each.

    The names are found by steps through indexes, one for each tube and state, however many jobs there are; only those
    of reserved jobs are found by reading all that are reserved.
    """
    held = sa.select(tasks.c.queue, sa.func.min(tasks.c.id)).where(is_working()).group_by(tasks.c.queue)
    first: dict[str, int] = {row[0]: row[1] for row in connection.execute(by_index(held, "tasks_claim"))}
    for part, names in _tubes_by_part(connection):
        for tubes in batches(names, rows=MAX_QUEUES):
            for queue, task_id in _heads_of_tubes(connection, part, tubes):
                if task_id is not None:
                    first[queue] = min(task_id, first.get(queue, task_id))
    return sorted(first, key=lambda queue: (first[queue], queue))


def unfinished_queues(connection: Connection) -> set[str]:
    """The queues that have pending tasks or tasks aside, by steps through indexes as `tubes_with_jobs`."""
    return {name for _, names in _tubes_by_part(connection) for name in names}


# ---------------------------------------------------------------- counts


def _count(connection: Connection, queue: str | None) -> TubeCounts:
    name = None if queue is None else sa.literal(queue)
    urgent = ready = ahead = 0
    for kind in PENDING_KINDS:
        row = connection.execute(_count_pending(kind, name)).one()
        urgent, ready, ahead = urgent + int(row[0] or 0), ready + int(row[1] or 0), ahead + int(row[2] or 0)
    mine = [is_working()] if name is None else [is_working(), tasks.c.queue == name]
    counted = [(*mine,), *((is_aside(status, name),) for status in ASIDE_STATUSES)]
    indexes = ["tasks_claim", *["tasks_aside"] * len(ASIDE_STATUSES)]
    counts = [
        by_index(sa.select(sa.func.count()).select_from(tasks).where(*conditions), index).scalar_subquery()
        for conditions, index in zip(counted, indexes, strict=True)
    ]
    reserved, *aside = connection.execute(sa.select(*counts)).one()
    numbers = dict(zip(ASIDE_STATUSES, aside, strict=True))
    buried = numbers.pop(Status.BURIED)
    delayed = ahead + sum(numbers.values())
    return TubeCounts(urgent=urgent, ready=ready, reserved=reserved, delayed=delayed, buried=buried)


def _count_pending(kind: PendingKind, queue: sa.ColumnElement[str] | None) -> sa.Select[Any]:
    """Urgent ones, ready ones, and those whose start is ahead: rows that SQL by hand has written."""
    is_ahead = tasks.c.due_at > now()
    is_urgent = sa.and_(tasks.c.claim_rank < -URGENT_ABOVE, sa.not_(is_ahead))
    counts = [sa.func.sum(sa.case((test, 1), else_=0)) for test in (is_urgent, sa.not_(is_ahead), is_ahead)]
    of_queue = kind.where(lambda name: name > sa.literal("")) if queue is None else kind.of(queue)
    return by_index(sa.select(*counts).where(of_queue), kind.index)


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


# ---------------------------------------------------------------- names of tubes


def _tubes_by_part(connection: Connection) -> Iterator[tuple[Part, list[str]]]:
    """The kinds of pending tasks and the statuses aside, with the queues that have such tasks, or may have.

    Where `tasks_aside` begins with the queue, the queues of one status could be found only by reading what is aside in
    all the others: there the queues with anything aside are found once, for all statuses.
    """
    for kind in PENDING_KINDS:
        yield kind, _tubes_of(connection, kind)
    begins_with_status = connection.dialect.name in MYSQL
    aside = [] if begins_with_status else _tubes_of(connection, None)
    for status in ASIDE_STATUSES:
        yield status, _tubes_of(connection, status) if begins_with_status else aside


def _tubes_of(connection: Connection, part: Part | None) -> list[str]:
    """The queues of pending tasks of a kind, or of those aside in a status, by name.

    None stands for all that are aside, which MySQL's index has not together.
    """
    names: list[str] = []
    last = ""
    if connection.dialect.name in MYSQL:
        assert part is not None
        while len(names) < TUBES_AT_ONCE:
            step = _next_tube_on_mysql(part).run(DriverConnection(connection), after=last).all()
            if not step:
                return names
            last = str(step[0][0])
            names.append(last)
        return names + [row[0] for row in _distinct_tubes(part).run(DriverConnection(connection), after=last).all()]
    while True:
        found = [
            row[0] for row in _next_tubes(part).run(DriverConnection(connection), after=last, most=TUBES_AT_ONCE).all()
        ]
        names += [name for name in found if name is not None]
        if len(found) < TUBES_AT_ONCE or found[-1] is None:
            return names
        last = found[-1]


@lru_cache(maxsize=8)
def _next_tubes(part: Part | None) -> CompiledStatement:
    """A step in the index for each: the first name after the one before."""
    after = sa.bindparam("after", type_=sa.Text())
    first = sa.select(_first_name(part, after).label("queue"), sa.literal_column("1").label("step"))
    steps = first.cte("steps", recursive=True)
    further = sa.select(_first_name(part, steps.c.queue), steps.c.step + sa.literal_column("1"))
    going_on = (steps.c.queue.is_not(None), steps.c.step < sa.bindparam("most", type_=sa.Integer()))
    walked = steps.union_all(further.where(*going_on))
    return CompiledStatement(sa.select(walked.c.queue).order_by(walked.c.step))


def _first_name(part: Part | None, after: sa.ColumnElement[str]) -> sa.ScalarSelect[Any]:
    if isinstance(part, PendingKind):
        condition = part.where(lambda name: name > after)
    else:
        condition = sa.and_(sa.text(ASIDE) if part is None else is_aside(part), tasks.c.queue > after)
    return sa.select(sa.func.min(tasks.c.queue)).where(condition).scalar_subquery()


@lru_cache(maxsize=8)
def _next_tube_on_mysql(part: Part) -> CompiledStatement:
    """A step in the index: MySQL cannot search by a name that the same statement has found."""
    names, key, index = _tubes_behind_on_mysql(part)
    return CompiledStatement(by_index(names.order_by(key), index).limit(sa.literal_column("1")))


@lru_cache(maxsize=8)
def _distinct_tubes(part: Part) -> CompiledStatement:
    """All tubes behind one. It reads all their entries, and is for many tubes, which have few jobs each."""
    names, _, index = _tubes_behind_on_mysql(part)
    return CompiledStatement(by_index(names.distinct(), index))


def _tubes_behind_on_mysql(part: Part) -> tuple[sa.Select[Any], sa.ColumnElement[Any], str]:
    """The tubes whose names are behind one, the column of the index by which they are found, and the index."""
    after = sa.bindparam("after", type_=sa.Text())
    if isinstance(part, PendingKind):
        return sa.select(part.queue).where(part.where(lambda name: name > after)), part.queue, part.index
    key = tasks.c.aside_queue
    name = sa.func.substr(key, len(part) + 2)
    behind = key > sa.func.concat(sa.literal_column(f"'{part} '", sa.Text()), after)
    return sa.select(name).where(is_aside(part), behind), key, "tasks_aside"


def _heads_of_tubes(connection: Connection, part: Part, tubes: Sequence[str]) -> Sequence[Sequence[Any]]:
    """Each tube, and the id of its first job in the index."""
    if connection.dialect.name in MYSQL:
        return run_union(DriverConnection(connection), [(_head_of_tube(part), {"queue": tube}) for tube in tubes])
    kind = connection.dialect.name
    return (
        _heads_in_table(kind, part)
        .run(DriverConnection(connection), queues=list_parameter(connection.dialect, tubes))
        .all()
    )


@lru_cache(maxsize=8)
def _head_of_tube(part: Part) -> CompiledStatement:
    queue = sa.bindparam("queue", type_=sa.String())
    return CompiledStatement(_first_job(part, queue, queue, tasks.c.id))


@lru_cache(maxsize=16)
def _heads_in_table(kind: str, part: Part) -> CompiledStatement:
    tube = queue_table(kind).subquery("tube")
    head = _first_job(part, tube.c.queue, tasks.c.id)
    return CompiledStatement(sa.select(tube.c.queue, head.correlate(tube).scalar_subquery()))


def _first_job(part: Part, queue: Any, *columns: Any) -> sa.Select[Any]:
    order: tuple[sa.ColumnElement[Any], ...] = aside_order()
    if isinstance(part, PendingKind):
        condition, index = part.of(queue), part.index
        order = (tasks.c.lane, *CLAIM_ORDER) if part is PENDING_WITHOUT_KEY else KEYED_CLAIM_ORDER
    else:
        condition, index = is_aside(part, queue), "tasks_aside"
    first = sa.select(*columns).where(condition).order_by(*order).limit(sa.literal_column("1"))
    return by_index(first, index)


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
    for kind in (PENDING_WITHOUT_KEY, PENDING_WITH_KEY):
        section = pending_section(kind, queue)
        section = msgspec.structs.replace(section, condition=sa.and_(kind.of(queue), is_startable()))
        lane: tuple[Any, ...] = ()
        while head := entries_behind(connection, section, lane, 1, tasks.c.lane, *CLAIM_ORDER):
            lane = head[0][:1]
            heads.append(head[0][1:])
    return peek(connection, int(min(heads)[-1])) if heads else None


def peek_delayed(connection: Connection, queue: str) -> FoundJob | None:
    """The delayed job of a tube that is ready soonest."""
    heads = [select_aside(status, queue, tasks.c.due_at, *BODIES, limit=1) for status in DELAYED]
    rows = [row for head in heads for row in connection.execute(head).all()]
    first = min(rows, key=lambda row: (row.due_at, row.id), default=None)
    return None if first is None else _to_found(first[1:])


def peek_buried(connection: Connection, queue: str) -> FoundJob | None:
    """The job of a tube that was buried first."""
    return _found(connection, select_aside(Status.BURIED, queue, *BODIES, limit=1))


def _found(connection: Connection, statement: sa.Select[Any]) -> FoundJob | None:
    row = connection.execute(statement).first()
    return None if row is None else _to_found(row)


def _to_found(row: Sequence[Any]) -> FoundJob:
    task_id, body, body_bytes = row
    return FoundJob(task_id, to_bytes(body, body_bytes))


# ---------------------------------------------------------------- fill


def count_unfinished_up_to(connection: Connection, queue: str, most: int) -> int:
    """The number of tasks of a queue that have not ended; ``most`` if there are so many or more.

    It reads at most ``most`` entries of each of the indexes that have unfinished tasks by their queue, and those of the
    running tasks of all queues, however large the table is. See `peerd.gateway.puts` for asking often.
    """
    return int(connection.execute(_count_statement(), {"queue": queue, "most": most}).scalar_one())


@lru_cache(maxsize=1)
def _count_statement() -> sa.Select[Any]:
    queue, most = sa.bindparam("queue", type_=sa.Text()), sa.bindparam("most", type_=sa.Integer())
    one: sa.Label[int] = sa.literal_column("1", sa.Integer()).label("one")
    # Ordered as their index, they are read by it: without an order, PostgreSQL may scan the table for the first rows.
    orders = ((tasks.c.lane, *CLAIM_ORDER), KEYED_CLAIM_ORDER)
    found = [
        by_index(sa.select(one).where(kind.of(queue)).order_by(*order), kind.index)
        for kind, order in zip(PENDING_KINDS, orders, strict=True)
    ]
    aside = [sa.select(one).where(is_aside(status, queue)).order_by(*aside_order()) for status in ASIDE_STATUSES]
    found += [by_index(part, "tasks_aside") for part in aside]
    found.append(by_index(sa.select(one).where(is_working(), tasks.c.queue == queue), "tasks_claim"))
    parts = [sa.select(part.limit(most).subquery(f"part_{place}")) for place, part in enumerate(found)]
    return sa.select(sa.func.count()).select_from(sa.union_all(*parts).limit(most).subquery("unfinished"))
