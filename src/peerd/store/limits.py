"""Limits: their definitions, how much of each is used now, and how many more tasks may start.

Nothing is reserved and nothing is returned. Running tasks are counted in `tasks` itself, so a dead holder loses no
capacity; a start that a rate counts is a row with a time after which it does not count. Both counts hold only while the
queue's row in `turns` is locked, because every process that starts a task of the queue has that lock.

For display the usage is read without locks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.limit import WHOLE_QUEUE, Limit, parse_limit_columns
from peerd.domain.task import EACH_KEY, SPAN_LIMIT
from peerd.store.schema.tables import limit_starts, limits, tasks
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import delete_oldest, insert_if_absent
from peerd.store.tasks.conditions import by_index, is_working
from peerd.store.tasks.rows import BATCH

MAX_LIMITS_READ: Final = 100
"""Limits of a queue that are read together; if it has more, those of its keys are read one by one."""
UNLIMITED: Final = 2**31 - 1
CountsByKey = Mapping[str | None, int]
"""Tasks of one queue by their key; None: those without."""
_QUEUE: Final = sa.bindparam("queue", type_=sa.String())
_COLUMNS: Final = (limits.c.running, limits.c.starts, limits.c.period)
_FIRST_LIMITS: Final = (
    sa.select(limits.c.limit_key, *_COLUMNS)
    .where(limits.c.queue == _QUEUE)
    .order_by(limits.c.limit_key)
    .limit(MAX_LIMITS_READ)
)
_LIMIT_OF: Final = sa.select(*_COLUMNS).where(
    limits.c.queue == _QUEUE, limits.c.limit_key == sa.bindparam("key", type_=sa.String())
)
_INSERT_START: Final[sa.Insert] = sa.insert(limit_starts).values(
    **{name: sa.bindparam(name) for name in ("queue", "limit_key", "turn", "starts")},
    started_at=now(),
    counts_until=seconds_from_now(sa.bindparam("seconds", type_=sa.Double())),
)


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
    return delete_oldest(connection, limit_starts, limit_starts.c.counts_until, now(), limit)


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


# ---------------------------------------------------------------- capacity


class _LimitRow(NamedTuple):
    running: int | None
    starts: int | None
    period: float | None


class LimitCapacity:
    """The capacity that the limits of one queue leave; without the lock of the queue's turn, it is an estimate.

    Args:
        connection: in the transaction that has locked the turn.
        queue: its name.
    """

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self._queue = queue
        rows = connection.execute(_FIRST_LIMITS, {"queue": queue}).all()
        self._limits: dict[str, _LimitRow | None] = {
            key: _LimitRow(*parse_limit_columns(*values)) for key, *values in rows
        }
        self._are_all_known = len(rows) < MAX_LIMITS_READ
        self._running: Counter[str] | None = None
        self._capacity_of_key: dict[str, int] = {}
        self.again_in: float | None = None
        """Seconds until a rate that has no capacity left lets something start; None where there is none."""

    @property
    def queue_is_limited(self) -> bool:
        """Whether the queue as a whole is limited."""
        return self._limit(WHOLE_QUEUE) is not None

    def for_queue(self) -> int:
        """How many tasks of the queue may start."""
        return self._capacity_of(self._limit(WHOLE_QUEUE), WHOLE_QUEUE)

    def for_key(self, key: str) -> int:
        """How many tasks of a key may start, as far as the key is concerned; `UNLIMITED` for tasks without one."""
        if key not in self._capacity_of_key:
            self._capacity_of_key[key] = self._capacity_of(self._limit_of_key(key), key)
        return self._capacity_of_key[key]

    def record_starts(self, turn: int, started: Mapping[str, int]) -> None:
        """Write the starts that rates count.

        Args:
            turn: the number of the claim.
            started: by key; those without are under an empty one.
        """
        rated = {WHOLE_QUEUE: (self._limit(WHOLE_QUEUE), sum(started.values()))}
        rated |= {key: (self._limit_of_key(key), number) for key, number in started.items() if key}
        rows = [
            {"queue": self._queue, "turn": turn, "limit_key": key, "starts": number, "seconds": limit.period}
            for key, (limit, number) in sorted(rated.items())
            if limit is not None and limit.starts is not None and number
        ]
        if rows:
            self._connection.execute(_INSERT_START, rows)

    def _limit_of_key(self, key: str) -> _LimitRow | None:
        return (self._limit(key) or self._limit(EACH_KEY)) if key else None

    def _limit(self, key: str) -> _LimitRow | None:
        if key not in self._limits and not self._are_all_known:
            row = self._connection.execute(_LIMIT_OF, {"queue": self._queue, "key": key}).first()
            self._limits[key] = None if row is None else _LimitRow(*parse_limit_columns(*row))
        return self._limits.get(key)

    def _capacity_of(self, limit: _LimitRow | None, key: str) -> int:
        capacity_left = UNLIMITED
        if limit is None:
            return capacity_left
        if limit.running is not None:
            capacity_left = limit.running - self._count_running()[key]
        if limit.starts is not None and limit.period is not None and capacity_left > 0:
            capacity_left = min(capacity_left, limit.starts - self._count_started(key, limit.period))
        return max(capacity_left, 0)

    def _count_running(self) -> Counter[str]:
        """Running tasks by key; all of them under the key of the queue."""
        if self._running is None:
            running = count_running(self._connection, self._queue)[self._queue]
            self._running = Counter({key: number for key, number in running.items() if key is not None})
            self._running[WHOLE_QUEUE] = sum(running.values())
        return self._running

    def _count_started(self, key: str, period: float) -> int:
        """Starts within the period; the time of the first one says when there will be more capacity."""
        mine = (limit_starts.c.queue == self._queue, limit_starts.c.limit_key == key)
        started: sa.Select[int, datetime, datetime] = sa.select(
            sa.func.sum(limit_starts.c.starts).label("starts"),
            sa.func.min(limit_starts.c.started_at).label("oldest"),
            now().label("now"),
        ).where(*mine, limit_starts.c.started_at > seconds_from_now(-period))
        row = self._connection.execute(started).one()
        if row.oldest is not None:
            left = (row.oldest + timedelta(seconds=period) - row.now).total_seconds()
            self.again_in = left if self.again_in is None else min(self.again_in, left)
        return int(row.starts or 0)


def count_running(connection: Connection, queue: str | None) -> Mapping[str, CountsByKey]:
    """How many tasks of each key run, of one queue or of all: a walk through all that run."""
    counts = sa.select(tasks.c.queue, tasks.c.limit_key, sa.func.count()).where(is_working())
    if queue is not None:
        counts = counts.where(tasks.c.queue == queue)
    running: dict[str, dict[str | None, int]] = defaultdict(dict)
    grouped = by_index(counts.group_by(tasks.c.queue, tasks.c.limit_key), "tasks_claim")
    for name, key, count in connection.execute(grouped):
        running[name][key] = count
    return running
