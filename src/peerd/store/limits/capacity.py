"""How many more tasks of a queue, and of each of its keys, may start: what its limits leave.

Nothing is reserved and nothing is given back. What runs is counted in `tasks` itself, so a place cannot be lost with
its holder; what was started is a row with a time after which it does not count any more. Both are true only while the
queue's row in `turns` is locked, because whoever starts a task of the queue has that lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.limit import WHOLE_QUEUE, parse_limit_columns
from peerd.domain.task import EACH_KEY
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import limit_starts, limits, tasks
from peerd.store.tasks.conditions import is_working

MAX_LIMITS_READ: Final = 100
"""Limits of a queue that are read together; if it has more, those of its keys are looked up singly."""
UNLIMITED: Final = 2**31 - 1


class _LimitRow(msgspec.Struct, frozen=True):
    """A row of `limits`."""

    running: int | None
    starts: int | None
    period: float | None


class LimitCapacity:
    """What the limits of one queue leave, within a transaction that has locked its turn; to all others, a guess.

    Args:
        connection: in that transaction.
        queue: its name.
    """

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self._queue = queue
        rows = connection.execute(_first_limits(), {"queue": queue, "most": MAX_LIMITS_READ}).all()
        self._limits: dict[str, _LimitRow | None] = {
            key: _LimitRow(*parse_limit_columns(*values)) for key, *values in rows
        }
        self._are_all_known = len(rows) < MAX_LIMITS_READ
        self._running: Counter[str] | None = None
        self._capacity_of_key: dict[str, int] = {}
        self.again_in: float | None = None
        """Seconds until a rate that is in the way lets something start; None where none is."""

    @property
    def queue_is_limited(self) -> bool:
        """Whether the queue as a whole is limited."""
        return self._limit(WHOLE_QUEUE) is not None

    def for_queue(self) -> int:
        """How many tasks of the queue may start."""
        limit = self._limit(WHOLE_QUEUE)
        return UNLIMITED if limit is None else self._capacity_of(limit, WHOLE_QUEUE)

    def for_key(self, key: str) -> int:
        """How many tasks of a key may start, as far as the key is concerned; any number that have none."""
        if key not in self._capacity_of_key:
            limit = self._limit_of_key(key)
            self._capacity_of_key[key] = UNLIMITED if limit is None else self._capacity_of(limit, key)
        return self._capacity_of_key[key]

    def record_starts(self, turn: int, started: Mapping[str, int]) -> None:
        """Write what was started, where a rate counts it.

        Args:
            turn: the number of the claim.
            started: by key; those without are under an empty one.
        """
        rated = {WHOLE_QUEUE: (self._limit(WHOLE_QUEUE), sum(started.values()))}
        rated |= {key: (self._limit_of_key(key), number) for key, number in started.items() if key}
        rows = [
            {"limit_key": key, "starts": number, "seconds": limit.period}
            for key, (limit, number) in sorted(rated.items())
            if limit is not None and limit.starts is not None and number
        ]
        if rows:
            self._connection.execute(_insert_start(), [{"queue": self._queue, "turn": turn, **row} for row in rows])

    def _limit_of_key(self, key: str) -> _LimitRow | None:
        if not key:
            return None
        own = self._limit(key)
        return self._limit(EACH_KEY) if own is None else own

    def _limit(self, key: str) -> _LimitRow | None:
        if key not in self._limits and not self._are_all_known:
            row = self._connection.execute(_limit_of(), {"queue": self._queue, "key": key}).first()
            self._limits[key] = None if row is None else _LimitRow(*parse_limit_columns(*row))
        return self._limits.get(key)

    def _capacity_of(self, limit: _LimitRow, key: str) -> int:
        capacity_left = UNLIMITED
        if limit.running is not None:
            capacity_left = limit.running - self._count_running()[key]
        if limit.starts is not None and limit.period is not None and capacity_left > 0:
            capacity_left = min(capacity_left, limit.starts - self._count_started(key, limit.period))
        return max(capacity_left, 0)

    def _count_running(self) -> Counter[str]:
        """Tasks that run, by key; all of them under the key of the queue."""
        if self._running is None:
            rows = self._connection.execute(_count_running_statement(), {"queue": self._queue}).all()
            self._running = Counter({key: number for key, number in rows if key is not None})
            self._running[WHOLE_QUEUE] = sum(number for _, number in rows)
        return self._running

    def _count_started(self, key: str, period: float) -> int:
        """What was started within the period; the first of it tells when there will be more room."""
        row = self._connection.execute(_count_starts_statement(period), {"queue": self._queue, "key": key}).one()
        if row.oldest is not None:
            left = (row.oldest + timedelta(seconds=period) - row.now).total_seconds()
            self.again_in = left if self.again_in is None else min(self.again_in, left)
        return int(row.starts or 0)


QUEUE: Final = sa.bindparam("queue", type_=sa.String())
KEY: Final = sa.bindparam("key", type_=sa.String())
COLUMNS: Final = (limits.c.running, limits.c.starts, limits.c.period)


@lru_cache(maxsize=1)
def _first_limits() -> sa.Select[Any]:
    mine = sa.select(limits.c.limit_key, *COLUMNS).where(limits.c.queue == QUEUE)
    return mine.order_by(limits.c.limit_key).limit(sa.bindparam("most", type_=sa.Integer()))


@lru_cache(maxsize=1)
def _limit_of() -> sa.Select[Any]:
    return sa.select(*COLUMNS).where(limits.c.queue == QUEUE, limits.c.limit_key == KEY)


@lru_cache(maxsize=1)
def _count_running_statement() -> sa.Select[Any]:
    mine = sa.select(tasks.c.limit_key, sa.func.count()).where(is_working(), tasks.c.queue == QUEUE)
    return mine.group_by(tasks.c.limit_key)


def _count_starts_statement(period: float) -> sa.Select[int, datetime, datetime]:
    count = sa.select(
        sa.func.sum(limit_starts.c.starts).label("starts"),
        sa.func.min(limit_starts.c.started_at).label("oldest"),
        now().label("now"),
    )
    mine = (limit_starts.c.queue == QUEUE, limit_starts.c.limit_key == KEY)
    return count.where(*mine, limit_starts.c.started_at > seconds_from_now(-period))


@lru_cache(maxsize=1)
def _insert_start() -> sa.Insert:
    names = ("queue", "limit_key", "turn", "starts")
    values: dict[str, Any] = {name: sa.bindparam(name) for name in names}
    until = seconds_from_now(sa.bindparam("seconds", type_=sa.Double()))
    return sa.insert(limit_starts).values(**values, started_at=now(), counts_until=until)
