"""The keys of a queue in the order of their turns, and the first tasks of each.

The order: the highest priority first; in it, the keys after the one that was served last, then the others. The index
`tasks_turns` is in that order, and is read a page at a time; a page that one key fills is followed by the next key. So
a million tasks of one key cost no more than a page of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.claim.candidates import is_startable
from peerd.store.claim.compare_and_set import lock_available_ids
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, PendingKind, by_index

MAX_LEVELS: Final = 50
"""Priorities that are gone through key by key. Beyond, the keys that may not start are left out by the database."""
PAGE_BEYOND_LEVELS: Final = 100
"""Tasks that are then looked at, at a time."""
PAGE_WHEN_BLOCKED: Final = 4
"""Tasks in a page where all keys of the page before the last could not start: there may be many such keys."""
LOWEST_RANK: Final = -(2**63)


class KeyCandidates(NamedTuple):
    """A key whose turn it is, and its first tasks: what they are ordered by, and at last their ids."""

    rank: int
    key: str
    tasks: list[tuple[Any, ...]]


class _KeyPosition(NamedTuple):
    """A key's place in the order of turns, in one lane."""

    rank: int
    is_after_wrap: bool
    key: str
    tasks: list[tuple[Any, ...]]


class KeyRoundRobin:
    """Goes through the keys of one queue.

    Args:
        connection: in a transaction that has locked the queue's turn.
        queue: its name.
        lanes: those that the claimer may take from.
        after: the key that was served last.
        page: tasks that are read at a time.
        with_unkeyed: go through the tasks that have none as well; together they are as one key, an empty one.
        skip_locked_rows: leave out the tasks that somebody else has locked, and lock the others.
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
        """Keys of which nothing may start now; whoever reads says so."""
        self.left: int | None = None
        """The rank of which no more keys are wanted; whoever reads says so."""

    def __iter__(self) -> Iterator[KeyCandidates]:
        lanes = [self._keys_of(lane) for lane in self._lanes]
        if self._with_unkeyed:
            lanes += [self._without_keys_of(lane) for lane in self._lanes]
        merged = heapq.merge(*lanes, key=lambda place: place[:3])
        for (rank, _, key), places in groupby(merged, key=lambda place: place[:3]):
            yield KeyCandidates(rank, key, sorted(task for place in places for task in place.tasks))

    def _keys_of(self, lane: int) -> Iterator[_KeyPosition]:
        rank = LOWEST_RANK
        for _ in range(MAX_LEVELS):
            values = {"queue": self._queue, "lane": lane, "rank": rank}
            found = _next_rank().run(self._connection, **values).scalar()
            if found is None:
                return
            rank = int(found)
            yield from self._level(lane, rank, is_after_wrap=False)
            if self.after:
                yield from self._level(lane, rank, is_after_wrap=True)
        yield from self._beyond(lane, rank)

    def _level(self, lane: int, rank: int, *, is_after_wrap: bool) -> Iterator[_KeyPosition]:
        values: dict[str, Any] = {"queue": self._queue, "lane": lane, "rank": rank, "most": self._page}
        values |= {"until": self.after} if is_after_wrap else {}
        position = "" if is_after_wrap else self.after
        judged: set[str] = set()
        keys: set[str] = set()
        while self.left != rank:
            values["most"] = PAGE_WHEN_BLOCKED if judged and judged <= self.blocked else self._page
            rows = _page(is_after_wrap).run(self._connection, **values, after=position).all()
            judged, keys = keys, {str(row[0]) for row in rows}
            for key, mine in groupby(self._free(rows), key=lambda row: str(row[0])):
                yield _KeyPosition(rank, is_after_wrap, key, [tuple(row[1:]) for row in mine])
                if self.left == rank:
                    return
            if len(rows) < values["most"]:
                return
            position = str(rows[-1][0])

    def _beyond(self, lane: int, rank: int) -> Iterator[_KeyPosition]:
        """The tasks of lower priorities, in the order of the index and without turns."""
        seen = -1
        while seen != len(self.blocked):
            seen = len(self.blocked)
            values = {"queue": self._queue, "lane": lane, "rank": rank, "blocked": sorted(self.blocked)}
            for lower, key, *order in self._free(self._connection.execute(_lower_ranks(), values).all()):
                yield _KeyPosition(int(lower), False, str(key), [tuple(order)])

    def _without_keys_of(self, lane: int) -> Iterator[_KeyPosition]:
        values = {"queue": self._queue, "lane": lane, "most": self._page}
        rows = _without_keys().run(self._connection, **values).all()
        for rank, mine in groupby(self._free(rows), key=lambda row: int(row[0])):
            yield _KeyPosition(rank, True, "", [tuple(row[1:]) for row in mine])

    def _free(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows of a page, whose last columns are the ids, that may be written without waiting for anybody."""
        if not self._skip_locked_rows:
            return rows
        free = set(lock_available_ids(self._connection, [row[-1] for row in rows]))
        return [row for row in rows if row[-1] in free]


QUEUE: Final = sa.bindparam("queue", type_=sa.String())
AFTER: Final = sa.bindparam("after", type_=sa.String())
UNTIL: Final = sa.bindparam("until", type_=sa.String())
LANE: Final = sa.bindparam("lane", type_=sa.Integer())
RANK: Final = sa.bindparam("rank", type_=sa.BigInteger())
MOST: Final = sa.bindparam("most", type_=sa.Integer())
WITHIN_KEY: Final = (tasks.c.attempts, tasks.c.due_at, tasks.c.id)


def _select_pending(kind: PendingKind, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return by_index(sa.select(*columns).where(kind.of(QUEUE), tasks.c.lane == LANE), kind.index)


@lru_cache(maxsize=1)
def _next_rank() -> CompiledStatement:
    return CompiledStatement(
        _select_pending(PENDING_WITH_KEY, sa.func.min(tasks.c.claim_rank)).where(tasks.c.claim_rank > RANK)
    )


@lru_cache(maxsize=2)
def _page(is_after_wrap: bool) -> CompiledStatement:  # noqa: FBT001 - the key of a cache
    level = _select_pending(PENDING_WITH_KEY, tasks.c.limit_key, *WITHIN_KEY).where(
        tasks.c.claim_rank == RANK, tasks.c.limit_key > AFTER
    )
    if is_after_wrap:
        level = level.where(tasks.c.limit_key <= UNTIL)
    return CompiledStatement(level.where(is_startable()).order_by(tasks.c.limit_key, *WITHIN_KEY).limit(MOST))


@lru_cache(maxsize=1)
def _lower_ranks() -> sa.Select[Any]:
    lower = _select_pending(PENDING_WITH_KEY, tasks.c.claim_rank, tasks.c.limit_key, *WITHIN_KEY).where(
        tasks.c.claim_rank > RANK
    )
    free = tasks.c.limit_key.not_in(sa.bindparam("blocked", expanding=True))
    order = (tasks.c.claim_rank, tasks.c.limit_key, *WITHIN_KEY)
    return lower.where(is_startable(), free).order_by(*order).limit(PAGE_BEYOND_LEVELS)


@lru_cache(maxsize=1)
def _without_keys() -> CompiledStatement:
    return CompiledStatement(
        _select_pending(PENDING_WITHOUT_KEY, *CLAIM_ORDER).where(is_startable()).order_by(*CLAIM_ORDER).limit(MOST)
    )
