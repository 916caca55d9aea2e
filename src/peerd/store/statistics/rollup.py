"""Coarser buckets are recomputed from finer ones, and old rows are deleted.

A coarse row is the sum over the fine rows of its span, with all processes of a node as one. It may be computed by
several nodes at once, and again at any time: its numbers only grow (`peerd.store.statistics.buckets`). A fine row may
come late, after an outage of its process, so the last spans are computed again and again, and all that the fine rows
still cover now and then.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.tables import depths, statistics
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statistics.buckets import BucketRow, write_buckets
from peerd.store.statistics.reading import sum_buckets
from peerd.store.statistics.steps import SETTLED_AFTER, Tile, bucket_start
from peerd.store.tasks.rows import BATCH

FINER: Final = {600: 60, 3_600: 600}
"""Of a step of `statistics`, that from which it is made."""
MOST_ROWS: Final = 100_000
"""Rows of a coarse span: 500 handlers of each of 200 nodes."""


class RollupStep(msgspec.Struct, frozen=True):
    """What was done.

    Attributes:
        rows: how many were written.
        after: from where to go on; None: nothing more is complete.
        done_until: the moment before which nothing is left; None: it is as it was.
    """

    rows: int
    after: datetime | None = None
    done_until: datetime | None = None


class CompleteSpan(msgspec.Struct, frozen=True):
    """A span of a coarse step that is over."""

    start: datetime
    end: datetime


def roll_up(connection: Connection, step: int, since: datetime, kept: float) -> RollupStep:
    """Compute the first complete coarse bucket that has fine rows, of those that begin at a moment or later.

    Args:
        connection: in a transaction.
        step: seconds of the coarse buckets.
        since: where to begin.
        kept: seconds for which the fine rows are kept. Of a bucket some of whose rows may be deleted, nothing is
            computed.
    """
    span = find_complete_span(connection, statistics, step, FINER[step], since, kept)
    if isinstance(span, RollupStep):
        return span
    start, end = span.start, span.end
    sums = sum_buckets(connection, Tile(FINER[step], start, end), ("queue", "name", "node_id"), most=MOST_ROWS)
    rows = [BucketRow(step, start, queue, name, node_id, 0, totals) for (queue, name, node_id), totals in sums]
    return RollupStep(write_buckets(connection, rows), end, end)


def find_complete_span(
    connection: Connection, table: sa.Table, step: int, finer: int, since: datetime, kept: float
) -> CompleteSpan | RollupStep:
    """The first span of a step that is over and has fine rows; a `RollupStep` that does nothing if there is none."""
    at, present = table.c.at, connection.execute(sa.select(now())).scalar_one()
    oldest = bucket_start(present - timedelta(seconds=kept), step) + timedelta(seconds=step)
    begin = max(bucket_start(since, step), oldest)
    found = connection.execute(sa.select(at).where(table.c.step == finer, at >= begin).order_by(at).limit(1)).scalar()
    if found is None:
        return RollupStep(0)
    start = bucket_start(found, step)
    end = start + timedelta(seconds=step)
    if present < end + timedelta(seconds=SETTLED_AFTER[step]):
        return RollupStep(0, done_until=start)
    return CompleteSpan(start, end)


def purge_statistics(connection: Connection, step: int, age: float, limit: int = BATCH) -> int:
    """Delete rows of a step that are older than so many seconds."""
    return _purge(connection, statistics, step, age, limit)


def purge_depths(connection: Connection, step: int, age: float, limit: int = BATCH) -> int:
    """Delete samples, or coarser rows, that are older than so many seconds."""
    return _purge(connection, depths, step, age, limit)


def _purge(connection: Connection, table: sa.Table, step: int, age: float, limit: int) -> int:
    """The rows of the oldest moments: about ``limit``, since all of a moment are deleted together.

    Both ends of their time are given: PostgreSQL takes the rows of other steps before the last moment for rows of this
    one, and would read the whole table in place of what it believes to be a large part of it.
    """
    of_step, at = table.c.step == step, table.c.at
    oldest = sa.select(at).where(of_step, at < seconds_from_now(-age)).order_by(at).limit(limit)
    moments = connection.execute(oldest).scalars().all()
    if not moments:
        return 0
    return connection.execute(sa.delete(table).where(of_step, at.between(moments[0], moments[-1]))).rowcount


def latest_bucket(step: int) -> sa.ScalarSelect[datetime]:
    """When the newest bucket of a step begins: one entry of the primary key."""
    at = statistics.c.at
    return sa.select(at).where(statistics.c.step == step).order_by(at.desc()).limit(1).scalar_subquery()
