"""Limits: their definitions, how much of each is used now, and the purge of the starts that rates count.

The usage is read for display, without locks. A limited claim counts under its own lock
(`peerd.store.limits.turns`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.limit import WHOLE_QUEUE, Limit, parse_limit_columns
from peerd.domain.task import EACH_KEY, SPAN_LIMIT
from peerd.store.limits.capacity import CountsByKey, count_running
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import limit_starts, limits
from peerd.store.tasks.rows import BATCH
from peerd.store.upserts import insert_if_absent


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how much of it is used now.

    Attributes:
        queue: its queue.
        key: the key that it is for; ``""``: the queue as a whole; ``"*"``: each key that has no limit of its own.
        running: tasks at once; None: any number.
        starts: in each ``period``; None: any number.
        period: seconds.
        running_now: tasks that run; None of a limit of each key.
        starts_now: within the last period; None of a limit of each key, and without a rate.
        full_keys: of a limit of each key: how many keys may start no further task now; None of others.
    """

    queue: str
    key: str
    running: int | None
    starts: int | None
    period: float | None
    running_now: int | None = None
    starts_now: int | None = None
    full_keys: int | None = None

    def allows(self, running: int, starts: int) -> bool:
        """Whether one more may start beside so many."""
        return (self.running is None or running < self.running) and (self.starts is None or starts < self.starts)


def set_limit(connection: Connection, limit: Limit) -> None:
    """Set a limit, or replace the one that was there, from the next claim on."""
    row = {"queue": limit.queue, "limit_key": limit.key}
    insert_if_absent(connection, limits, [row], key=("queue", "limit_key"))
    starts, period = (None, None) if limit.rate is None else (limit.rate.starts, limit.rate.period)
    statement = sa.update(limits).where(*_is_limit(limit.queue, limit.key))
    connection.execute(statement.values(running=limit.running, starts=starts, period=period, updated_at=now()))


def remove_limit(connection: Connection, queue: str, key: str) -> bool:
    """Remove a limit; whether there was one."""
    return bool(connection.execute(sa.delete(limits).where(*_is_limit(queue, key))).rowcount)


def list_limits(connection: Connection, queue: str | None = None) -> list[LimitState]:
    """All limits, or those of one queue, by queue and key, with the present usage of each."""
    statement = sa.select(limits).order_by(limits.c.queue, limits.c.limit_key)
    if queue is not None:
        statement = statement.where(limits.c.queue == queue)
    found = []
    for row in connection.execute(statement):
        most, starts_most, period = parse_limit_columns(row.running, row.starts, row.period)
        found.append(LimitState(queue=row.queue, key=row.limit_key, running=most, starts=starts_most, period=period))
    if not found:
        return []
    running, starts = count_running(connection, queue), _starts(connection, queue)
    named: dict[str, set[str]] = defaultdict(set)
    for limit in found:
        named[limit.queue].add(limit.key)
    return [_with_usage(limit, running[limit.queue], starts[limit.queue], named[limit.queue]) for limit in found]


def purge_limit_starts(connection: Connection, limit: int = BATCH) -> int:
    """Delete starts that no rate counts any longer."""
    over = sa.and_(limit_starts.c.counts_until.is_not(None), limit_starts.c.counts_until <= now())
    key = (limit_starts.c.queue, limit_starts.c.limit_key, limit_starts.c.turn)
    oldest = sa.select(*key).where(over).order_by(limit_starts.c.counts_until).limit(limit)
    found = connection.execute(oldest.with_for_update(skip_locked=True)).all()
    turns: dict[tuple[str, str], list[int]] = defaultdict(list)
    for queue, limit_key, turn in found:
        turns[queue, limit_key].append(turn)
    deleted = 0
    for (queue, limit_key), mine in sorted(turns.items()):
        one = (limit_starts.c.queue == queue, limit_starts.c.limit_key == limit_key)
        statement = sa.delete(limit_starts).where(*one, limit_starts.c.turn.in_(sorted(mine)), over)
        deleted += connection.execute(statement).rowcount
    return deleted


def _is_limit(queue: str, key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return limits.c.queue == queue, limits.c.limit_key == key


def _with_usage(limit: LimitState, running: CountsByKey, starts: CountsByKey, named: set[str]) -> LimitState:
    """A limit with its usage, from the running tasks and the counted starts of its queue."""
    if limit.key == EACH_KEY:
        busy = {key for key in {*running, *starts} if key is not None and key not in named}
        full = sum(not limit.allows(running.get(key, 0), starts.get(key, 0)) for key in busy)
        return msgspec.structs.replace(limit, full_keys=full)
    runs = sum(running.values()) if limit.key == WHOLE_QUEUE else running.get(limit.key, 0)
    started = None if limit.starts is None else starts.get(limit.key, 0)
    return msgspec.structs.replace(limit, running_now=runs, starts_now=started)


def _starts(connection: Connection, queue: str | None) -> Mapping[str, CountsByKey]:
    """How many starts of each key count now for the limit that it has."""
    period = sa.case((limits.c.period < SPAN_LIMIT, limits.c.period), else_=SPAN_LIMIT)
    group = (limit_starts.c.queue, limit_starts.c.limit_key)
    counts = sa.select(*group, sa.func.sum(limit_starts.c.starts)).group_by(*group)
    counts = counts.where(limits.c.starts.is_not(None), limit_starts.c.started_at > seconds_from_now(-period))
    if queue is not None:
        counts = counts.where(limits.c.queue == queue)
    of_key = limit_starts.c.limit_key == limits.c.limit_key
    of_each = sa.and_(limits.c.limit_key == EACH_KEY, limit_starts.c.limit_key > WHOLE_QUEUE)
    started: dict[str, dict[str | None, int]] = defaultdict(dict)
    for counted in (of_each, of_key):  # a key with a limit of its own is counted by that one, which comes last
        joined = limits.join(limit_starts, sa.and_(limit_starts.c.queue == limits.c.queue, counted))
        for name, key, count in connection.execute(counts.select_from(joined)):
            started[name][key] = int(count)
    return started
