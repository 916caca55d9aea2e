"""The capacity of limits: how many more tasks of a queue, and of each of its keys, may start.

Nothing is reserved and nothing is returned. Running tasks are counted in `tasks` itself, so a dead holder loses no
capacity; a start that a rate counts is a row with a time after which it does not count. Both counts hold only while the
queue's row in `turns` is locked, because every process that starts a task of the queue has that lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.limit import WHOLE_QUEUE, parse_limit_columns
from peerd.domain.task import EACH_KEY
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import limit_starts, limits, tasks
from peerd.store.tasks.conditions import by_index, is_working

MAX_LIMITS_READ: Final = 100
"""Limits of a queue that are read together; if it has more, those of its keys are read one by one."""
UNLIMITED: Final = 2**31 - 1


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


CountsByKey = Mapping[str | None, int]
"""Tasks of one queue by their key; None: those without."""


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
