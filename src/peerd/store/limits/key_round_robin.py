"""The keys of a queue in round-robin order, and the first tasks of each.

The order: the highest priority first; within it, the keys after the one that was served last, then the others. The
index `tasks_turns` has that order, and is read a page at a time; a page that one key fills is followed by the next key.
So a million tasks of one key cost no more than a page of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.statements import CompiledStatement
from peerd.store.take.eligibility import is_startable
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, PendingKind, by_index
from peerd.store.tasks.rows import lock_available

MAX_LEVELS: Final = 50
"""Priorities that are read key by key. Beyond, the database leaves out the keys that may not start."""
PAGE_BEYOND_LEVELS: Final = 100
"""Tasks that are then read at a time."""
PAGE_WHEN_BLOCKED: Final = 4
"""Tasks in a page where all keys of the page before the last could not start: there may be many such keys."""
LOWEST_RANK: Final = -(2**63)


class KeyCandidates(NamedTuple):
    """A key, its position in the round-robin order, and its first tasks: the columns of their order, ids last."""

    rank: int
    is_after_wrap: bool
    key: str
    tasks: list[tuple[Any, ...]]


class KeyRoundRobin:
    """Iterates over the keys of one queue.

    Args:
        connection: in a transaction that has locked the queue's turn.
        queue: its name.
        lanes: those that the claimer may take from.
        after: the key that was served last.
        page: tasks that are read at a time.
        with_unkeyed: include the tasks without a key; together they are as one key, an empty one.
        skip_locked_rows: leave out the tasks that another session has locked, and lock the others.
    """

    def __init__(
        self,
        connection: Connection,
        queue: str,
        lanes: Sequence[int],
        *,
        after: str,
        page: int,
        with_unkeyed: bool,
        skip_locked_rows: bool = False,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._lanes = lanes
        self.after = after
        self._page = page
        self._with_unkeyed = with_unkeyed
        self._skip_locked_rows = skip_locked_rows
        self.blocked: set[str] = set()
        """Keys of which nothing may start now; set by the caller."""
        self.left: int | None = None
        """The rank of which no more keys are wanted; set by the caller."""

    def __iter__(self) -> Iterator[KeyCandidates]:
        lanes = [self._keys_of(lane) for lane in self._lanes]
        if self._with_unkeyed:
            lanes += [self._unkeyed_of(lane) for lane in self._lanes]
        merged = heapq.merge(*lanes, key=lambda found: found[:3])
        for (rank, is_after_wrap, key), same in groupby(merged, key=lambda found: found[:3]):
            yield KeyCandidates(rank, is_after_wrap, key, sorted(task for found in same for task in found.tasks))

    def _keys_of(self, lane: int) -> Iterator[KeyCandidates]:
        rank = LOWEST_RANK
        for _ in range(MAX_LEVELS):
            found = _NEXT_RANK.run(self._connection, queue=self._queue, lane=lane, rank=rank).scalar()
            if found is None:
                return
            rank = int(found)
            yield from self._level(lane, rank, is_after_wrap=False)
            if self.after:
                yield from self._level(lane, rank, is_after_wrap=True)
        yield from self._beyond_levels(lane, rank)

    def _level(self, lane: int, rank: int, *, is_after_wrap: bool) -> Iterator[KeyCandidates]:
        values: dict[str, Any] = {"queue": self._queue, "lane": lane, "rank": rank, "most": self._page}
        values |= {"until": self.after} if is_after_wrap else {}
        statement, position = (_PAGE_AFTER_WRAP, "") if is_after_wrap else (_PAGE, self.after)
        before: set[str] = set()
        keys: set[str] = set()
        while self.left != rank:
            values["most"] = PAGE_WHEN_BLOCKED if before and before <= self.blocked else self._page
            rows = statement.run(self._connection, **values, after=position).all()
            before, keys = keys, {str(row[0]) for row in rows}
            for key, mine in groupby(self._available(rows), key=lambda row: str(row[0])):
                yield KeyCandidates(rank, is_after_wrap, key, [tuple(row[1:]) for row in mine])
                if self.left == rank:
                    return
            if len(rows) < values["most"]:
                return
            position = str(rows[-1][0])

    def _beyond_levels(self, lane: int, rank: int) -> Iterator[KeyCandidates]:
        """The tasks of lower priorities, in the order of the index and without round-robin."""
        known = -1
        while known != len(self.blocked):
            known = len(self.blocked)
            values = {"queue": self._queue, "lane": lane, "rank": rank, "blocked": sorted(self.blocked)}
            for lower, key, *order in self._available(self._connection.execute(_LOWER_RANKS, values).all()):
                yield KeyCandidates(int(lower), False, str(key), [tuple(order)])

    def _unkeyed_of(self, lane: int) -> Iterator[KeyCandidates]:
        rows = _UNKEYED.run(self._connection, queue=self._queue, lane=lane, most=self._page).all()
        for rank, mine in groupby(self._available(rows), key=lambda row: int(row[0])):
            yield KeyCandidates(rank, True, "", [tuple(row[1:]) for row in mine])

    def _available(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows of a page, whose last columns are the ids, that can be written without waiting for a lock."""
        if not self._skip_locked_rows:
            return rows
        available = set(lock_available(self._connection, [row[-1] for row in rows]))
        return [row for row in rows if row[-1] in available]


def _select_pending(kind: PendingKind, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    queue, lane = sa.bindparam("queue", type_=sa.String()), sa.bindparam("lane", type_=sa.Integer())
    return by_index(sa.select(*columns).where(kind.of(queue), tasks.c.lane == lane), kind.index)


def _text(name: str) -> sa.BindParameter[str]:
    return sa.bindparam(name, type_=sa.String())


_RANK: Final = sa.bindparam("rank", type_=sa.BigInteger())
_MOST: Final = sa.bindparam("most", type_=sa.Integer())
_WITHIN_KEY: Final = (tasks.c.failures, tasks.c.due_at, tasks.c.id)
_NEXT_RANK: Final = CompiledStatement(
    _select_pending(PENDING_WITH_KEY, sa.func.min(tasks.c.claim_rank)).where(tasks.c.claim_rank > _RANK)
)
_LEVEL: Final = (
    _select_pending(PENDING_WITH_KEY, tasks.c.limit_key, *_WITHIN_KEY)
    .where(tasks.c.claim_rank == _RANK, tasks.c.limit_key > _text("after"), is_startable())
    .order_by(tasks.c.limit_key, *_WITHIN_KEY)
    .limit(_MOST)
)
_PAGE: Final = CompiledStatement(_LEVEL)
_PAGE_AFTER_WRAP: Final = CompiledStatement(_LEVEL.where(tasks.c.limit_key <= _text("until")))
_LOWER_RANKS: Final = (
    _select_pending(PENDING_WITH_KEY, tasks.c.claim_rank, tasks.c.limit_key, *_WITHIN_KEY)
    .where(tasks.c.claim_rank > _RANK, is_startable())
    .where(tasks.c.limit_key.not_in(sa.bindparam("blocked", expanding=True)))
    .order_by(tasks.c.claim_rank, tasks.c.limit_key, *_WITHIN_KEY)
    .limit(PAGE_BEYOND_LEVELS)
)
_UNKEYED: Final = CompiledStatement(
    _select_pending(PENDING_WITHOUT_KEY, *CLAIM_ORDER).where(is_startable()).order_by(*CLAIM_ORDER).limit(_MOST)
)
