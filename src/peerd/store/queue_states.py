"""The state of each queue: its pause, its tasks, since when the oldest one waits; and samples of their depths.

A depth is how many tasks of each status a queue has, and for how long the oldest pending one has been due. One manager
of the cluster samples them, and everything else reads its samples, so that nothing counts tasks more often for being
looked at more often. Each count ends at a limit, as those of `peerd.store.tasks.counts`. A sample has a row for each
queue and status that has tasks, and rows of all queues together, whose queue is ''; of those there is always one for
pending tasks. Coarser rows hold the largest values of their span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.queues import has_jobs_of_clients
from peerd.store.records import columns_of, read_all
from peerd.store.schema.tables import depths, queues
from peerd.store.schema.types import Instant, now
from peerd.store.tasks import counts
from peerd.store.tasks.rows import BATCH, batches
from peerd.store.time_series import (
    SAMPLE,
    RollupStep,
    find_complete_span,
    placeholder_of,
    purge_step,
    upsert_of_greater,
)


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue.

    Attributes:
        name: its name.
        known: it has been served by a worker process, or paused.
        paused: nothing is claimed from it.
        paused_until: when it opens by itself.
        counts: its tasks of each status; of ended ones, those among the latest 10,000 of all queues.
        at_least: the statuses with so many tasks or more, because counting ends at 10,000.
        reserved: working ones that queue clients hold.
        oldest_pending_at: since when its oldest pending task has been due.
    """

    name: str
    known: bool
    paused: bool
    paused_until: datetime | None
    counts: dict[Status, int]
    at_least: list[Status]
    reserved: int
    oldest_pending_at: datetime | None


def list_queues(
    connection: Connection, most: int = counts.MOST_COUNTED, *, ended: bool = True, limit: int | None = None
) -> list[QueueState]:
    """All queues that have unfinished or lately ended tasks, or have been served or paused, by name.

    Its cost depends on the number of queues, and not on the number of tasks: it takes some steps in an index for each
    queue, and reads ``most`` entries at the most for each status of it.

    Args:
        connection: of a read.
        most: each count ends there.
        ended: whether ended tasks are counted, too.
        limit: queues at the most, the first by name; None: all.
    """
    over = sa.and_(queues.c.paused_until.is_not(None), queues.c.paused_until <= now())
    known = sa.select(queues.c.name, queues.c.paused, queues.c.paused_until, over.label("over"))
    rows = {row.name: row for row in connection.execute(known)}
    working = counts.count_working(connection)
    ends = {status: counts.count_ended(connection, status, most) for status in (FINISHED if ended else ())}
    names = {
        *rows,
        *working,
        *counts.unfinished_queues(connection),
        *(name for found in ends.values() for name in found),
    }
    full = {status for status, found in ends.items() if sum(found.values()) >= most}
    states = []
    for name in sorted(names)[:limit]:
        row = rows.get(name)
        paused = row is not None and bool(row.paused) and not row.over
        unfinished = counts.count_unfinished(connection, name, most)
        running, reserved = working.get(name, (0, 0))
        by_status = unfinished.counts | ({Status.WORKING: running} if running else {})
        by_status |= {status: found[name] for status, found in ends.items() if name in found}
        reached = {*unfinished.at_least, *full} & by_status.keys()
        states.append(
            QueueState(
                name=name,
                known=row is not None,
                paused=paused,
                paused_until=row.paused_until if row is not None and paused else None,
                counts=by_status,
                at_least=[status for status in Status if status in reached],
                reserved=reserved,
                oldest_pending_at=counts.oldest_pending(connection, name) if by_status.get(Status.PENDING) else None,
            )
        )
    return states


# ---------------------------------------------------------------- depths


ALL_QUEUES: Final = ""
MOST_QUEUES: Final = 1_000
"""Queues of a sample; of more, the first by name."""
FINER: Final = {600: SAMPLE, 3_600: 600}
"""The step of `depths` that a step is made from."""
_INSTANT: Final = Instant()


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The unfinished tasks of a queue.

    Attributes:
        queue: its name.
        counts: of each status that occurs.
        at_least: the statuses with so many tasks or more, because counting ends at a limit.
        oldest: seconds for which the oldest pending task has been due; None if none is.
        known: it has been served by a worker process, or paused.
        paused: nothing is claimed from it.
    """

    queue: str
    counts: dict[Status, int]
    at_least: frozenset[Status]
    oldest: float | None
    known: bool = True
    paused: bool = False


class DepthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one status in one queue, or in all of them, at one moment.

    Attributes:
        at: the moment of the sample; of a coarser row, the beginning of its span.
        queue: '' is all queues.
        status: of the tasks.
        count: how many; of a coarser row, the most that a sample has found.
        at_least: there are so many or more.
        oldest: seconds for which the oldest pending task had been due.
    """

    at: datetime
    queue: str
    status: Status
    count: int
    at_least: bool
    oldest: float | None


_POINTS: Final = sa.select(*columns_of(DepthPoint, depths))


def sample_depths(connection: Connection, most: int = counts.MOST_COUNTED) -> list[QueueDepth]:
    """Count the unfinished tasks of all queues, and find their oldest pending ones."""
    moment = connection.execute(sa.select(now())).scalar_one()
    return [
        QueueDepth(
            queue=state.name,
            counts=state.counts,
            at_least=frozenset(state.at_least),
            oldest=None if (at := state.oldest_pending_at) is None else max(0.0, (moment - at).total_seconds()),
            known=state.known,
            paused=state.paused,
        )
        for state in list_queues(connection, most, ended=False, limit=MOST_QUEUES)
    ]


def depth_points(connection: Connection, sample: Sequence[QueueDepth]) -> list[DepthPoint]:
    """A sample, which is of now, as its rows: of each queue, and of all together."""
    moment = connection.execute(sa.select(now())).scalar_one()
    total: Counter[Status] = Counter({Status.PENDING: 0})
    for depth in sample:
        total.update(depth.counts)
    at_least = frozenset(status for depth in sample for status in depth.at_least)
    oldest = max((depth.oldest for depth in sample if depth.oldest is not None), default=None)
    whole = QueueDepth(queue=ALL_QUEUES, counts=dict(total), at_least=at_least, oldest=oldest)
    return [
        DepthPoint(
            at=moment,
            queue=depth.queue,
            status=status,
            count=count,
            at_least=status in depth.at_least,
            oldest=depth.oldest if status is Status.PENDING else None,
        )
        for depth in (*sample, whole)
        for status, count in depth.counts.items()
    ]


def write_depths(connection: Connection, sample: Sequence[QueueDepth]) -> datetime:
    """Write a sample, which is of now; returns that moment."""
    points = depth_points(connection, sample)
    rows = [msgspec.structs.asdict(point) | {"step": SAMPLE, "status": str(point.status)} for point in points]
    for piece in batches(rows):
        connection.execute(sa.insert(depths), piece)
    return points[0].at


def latest_counts(
    connection: Connection, only: Collection[str] | None, statuses: Collection[Status]
) -> counts.TaskCounts:
    """The tasks of some queues, or of all: unfinished ones as the latest sample has them, and the latest ended ones.

    It reads a sample, and as many index entries as counting ends at for each status of ended tasks.
    """
    names = {ALL_QUEUES} if only is None else set(only)
    sample = latest_depths(connection) if not set(statuses) <= set(FINISHED) else []
    points = [point for point in sample if point.queue in names and point.status in statuses]
    found = Counter({point.status: 0 for point in points})
    for point in points:
        found[point.status] += point.count
    reached = {point.status for point in points if point.at_least}
    for status in set(FINISHED).intersection(statuses):
        ended = counts.count_ended(connection, status)
        found[status] = sum(count for queue, count in ended.items() if only is None or queue in names)
        reached |= {status} if sum(ended.values()) >= counts.MOST_COUNTED else set()
    return counts.TaskCounts({status: count for status, count in found.items() if count}, frozenset(reached))


def latest_depths(connection: Connection) -> list[DepthPoint]:
    """The rows of the latest sample, by queue; empty if there is none."""
    at = depths.c.at
    latest = sa.select(at).where(depths.c.step == SAMPLE).order_by(at.desc()).limit(1)
    moment = connection.execute(latest).scalar()
    if moment is None:
        return []
    rows = _POINTS.where(depths.c.step == SAMPLE, at == moment)
    return read_all(connection, DepthPoint, rows.order_by(depths.c.queue, depths.c.status))


def list_depths(connection: Connection, step: int, since: datetime, queue: str, most: int) -> list[DepthPoint]:
    """The rows of a queue, or of all together, from a moment on, by time; so many at the most."""
    of_queue = (depths.c.step == step, depths.c.at >= since, depths.c.queue == queue)
    rows = _POINTS.where(*of_queue).order_by(depths.c.at, depths.c.status).limit(most)
    return read_all(connection, DepthPoint, rows)


def list_pending(connection: Connection, since: datetime, only: Collection[str] | None, most: int) -> list[DepthPoint]:
    """The samples of pending tasks from a moment on, by time: of all queues together, and of some of them, or each.

    Of more than ``most`` these are the newest.
    """
    wanted = sa.true() if only is None else depths.c.queue.in_([ALL_QUEUES, *only])
    of_pending = (depths.c.step == SAMPLE, depths.c.at >= since, depths.c.status == Status.PENDING, wanted)
    rows = _POINTS.where(*of_pending).order_by(depths.c.at.desc()).limit(most)
    return read_all(connection, DepthPoint, rows)[::-1]


def roll_up_depths(connection: Connection, step: int, since: datetime, kept: float) -> RollupStep:
    """Roll samples up (`attempt_series.roll_up`): a coarse row has the greatest values of its span."""
    span = find_complete_span(connection, depths, step, FINER[step], since, kept)
    if isinstance(span, RollupStep):
        return span
    start, end = span
    at, fine = depths.c.at, depths.c.step == FINER[step]
    statement = sa.select(
        depths.c.queue,
        depths.c.status,
        sa.func.max(depths.c.count).label("most"),
        sa.func.max(sa.cast(depths.c.at_least, sa.Integer)).label("at_least"),
        sa.func.max(depths.c.oldest).label("oldest"),
    )
    statement = statement.where(fine, at >= start, at < end).group_by(depths.c.queue, depths.c.status)
    moment = _INSTANT.process_bind_param(start, connection.dialect)
    rows = [
        (moment, row.queue, row.status, int(row.most), bool(row.at_least), row.oldest)
        for row in connection.execute(statement)
    ]
    for piece in batches(rows):
        _write_greater(connection, step, piece)
    return RollupStep(len(rows), end, end)


def purge_depths(connection: Connection, step: int, age: float, limit: int = BATCH) -> int:
    """Delete samples, or coarser rows, that are older than so many seconds."""
    return purge_step(connection, depths, step, age, limit)


def _write_greater(connection: Connection, step: int, rows: Sequence[tuple[Any, ...]]) -> None:
    columns = ("at", "queue", "status", "count", "at_least", "oldest")
    head, tail = upsert_of_greater("depths", ("step", "at", "queue", "status"), columns[3:], connection.dialect.name)
    place = placeholder_of(connection)
    row = f"({step:d}, {', '.join([place] * len(columns))})"
    connection.exec_driver_sql(f"{head} {', '.join([row] * len(rows))} {tail}", tuple(chain.from_iterable(rows)))


# ---------------------------------------------------------------- late queues


class LateQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is open and whose oldest pending task has been due for a while.

    Attributes:
        name: its name.
        age: seconds for which the task has been due.
        is_served: a worker process has ever served it, or queue clients use it.
    """

    name: str
    age: float
    is_served: bool


def find_late_queues(
    connection: Connection, sample: Iterable[QueueDepth], longer_than: float, unserved_after: float
) -> list[LateQueue]:
    """The queues of a sample whose oldest pending task has been due for ``longer_than`` seconds.

    Those that no process has ever served are found after ``unserved_after`` seconds already, paused ones never.
    """
    found = []
    for depth in sample:
        age = 0.0 if depth.oldest is None or depth.paused else depth.oldest
        if age >= min(longer_than, unserved_after):
            is_served = depth.known or has_jobs_of_clients(connection, depth.queue)
            if age >= (longer_than if is_served else unserved_after):
                found.append(LateQueue(name=depth.queue, age=age, is_served=is_served))
    return found
