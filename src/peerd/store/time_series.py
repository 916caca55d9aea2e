"""The steps of time series: the fine one is written, the coarser ones are made of it, and each is kept for its age.

An INSERT keeps the greater values of rows that are there already: numbers that only grow may be written so any number
of times, late, in any order and by several nodes at once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.types import now, seconds_from_now

MINUTE: Final = 60
TEN_MINUTES: Final = 600
HOUR: Final = 3_600
STEPS: Final = (MINUTE, TEN_MINUTES, HOUR)
"""Seconds of a bucket of the table `statistics`."""
SAMPLE: Final = 15
"""Seconds between two samples of the table `depths`, as the step of their rows."""
LONGEST_FINE: Final = 2 * HOUR
LONGEST_MEDIUM: Final = 2 * 86_400
"""Seconds for which a series has points of a minute, or of ten minutes."""
SETTLED_AFTER: Final = {TEN_MINUTES: 60.0, HOUR: 240.0}
"""Seconds after the end of a span of a step, at which it is made of finer rows: by then those are written, unless the
database was away."""
READ_AFTER: Final = {TEN_MINUTES: 240.0, HOUR: 600.0}
"""Seconds after the end of such a span, until which the finer rows are read in place of it."""


class Tile(msgspec.Struct, frozen=True):
    """A part of a span of time, and the step of the rows that are read for it."""

    step: int
    since: datetime
    until: datetime


def tiles(since: datetime, now: datetime, step: int) -> list[Tile]:
    """The parts of the time from a moment until now: the coarsest rows that there are, and finer ones at its end.

    Nothing is read twice and nothing is left out; the first part begins with a bucket of its own step.

    Args:
        since: the beginning.
        now: the present.
        step: of the coarsest rows.

    >>> now = datetime(2026, 1, 1, 12, 34, tzinfo=UTC)
    >>> parts = tiles(now - timedelta(hours=3), now, HOUR)
    >>> [(tile.step, f"{tile.since:%H:%M}", f"{tile.until:%H:%M}") for tile in parts]
    [(3600, '09:00', '12:00'), (600, '12:00', '12:30'), (60, '12:30', '12:35')]
    """
    begin, found = since, []
    for one in (HOUR, TEN_MINUTES):
        end = bucket_start(now - timedelta(seconds=READ_AFTER[one]), one)
        begin = bucket_start(begin, one) if one <= step else begin
        if one <= step and begin < end:
            found.append(Tile(one, begin, end))
            begin = end
    begin = bucket_start(begin, MINUTE)
    return [*found, Tile(MINUTE, begin, bucket_start(now, MINUTE) + timedelta(seconds=MINUTE))]


def bucket_start(moment: datetime, step: int) -> datetime:
    """The start of the bucket of a moment.

    >>> bucket_start(datetime(2026, 1, 1, 12, 34, 56, tzinfo=UTC), TEN_MINUTES).isoformat()
    '2026-01-01T12:30:00+00:00'
    """
    return datetime.fromtimestamp(moment.timestamp() // step * step, UTC)


def step_for(seconds: float) -> int:
    """The step in which a span of time is read: a hundred buckets or two, however long it is.

    >>> [step_for(hours * HOUR) for hours in (1, 24, 24 * 30)]
    [60, 600, 3600]
    """
    if seconds <= LONGEST_FINE:
        return MINUTE
    return TEN_MINUTES if seconds <= LONGEST_MEDIUM else HOUR


# ---------------------------------------------------------------- coarser rows


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


def find_complete_span(
    connection: Connection, table: sa.Table, step: int, finer: int, since: datetime, kept: float
) -> tuple[datetime, datetime] | RollupStep:
    """Begin and end of the first span of a step that is over and has fine rows.

    Returns:
        both; a `RollupStep` that does nothing if there is no such span.
    """
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
    return start, end


def purge_step(connection: Connection, table: sa.Table, step: int, age: float, limit: int) -> int:
    """Delete rows of a step that are older than so many seconds, of the oldest moments.

    They are about ``limit``, since all of a moment are deleted together.

    Both ends of their time are given: PostgreSQL takes the rows of other steps before the last moment for rows of this
    one, and would read the whole table in place of what it believes to be a large part of it.
    """
    of_step, at = table.c.step == step, table.c.at
    oldest = sa.select(at).where(of_step, at < seconds_from_now(-age)).order_by(at).limit(limit)
    moments = connection.execute(oldest).scalars().all()
    if not moments:
        return 0
    return connection.execute(sa.delete(table).where(of_step, at.between(moments[0], moments[-1]))).rowcount


# ---------------------------------------------------------------- the greater of two values


def placeholder_of(connection: Connection) -> str:
    """How the driver marks a parameter in the text of a statement."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


@lru_cache(maxsize=16)
def upsert_of_greater(table: str, key: tuple[str, ...], values: tuple[str, ...], dialect: str) -> tuple[str, str]:
    """The statement's text before and behind its rows. A value that is null gives way to any other.

    >>> upsert_of_greater("t", ("id",), ("n",), "sqlite")[1]
    'ON CONFLICT (id) DO UPDATE SET n = COALESCE(MAX(t.n, excluded.n), t.n, excluded.n)'
    """
    head = f"INSERT INTO {table} ({', '.join((*key, *values))}) VALUES"
    function = "MAX" if dialect == "sqlite" else "GREATEST"

    def greater(name: str) -> str:
        old, new = f"{table}.{name}", f"VALUES({name})" if dialect == "mysql" else f"excluded.{name}"
        return f"{name} = COALESCE({function}({old}, {new}), {old}, {new})"

    kept = ", ".join(greater(name) for name in values)
    if dialect == "mysql":
        return head, f"ON DUPLICATE KEY UPDATE {kept}"
    return head, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {kept}"
