"""Turns: taking the tasks of a queue that count for a limit, one taker after another.

They are the tasks that have limit keys, and all tasks of a queue that has a limit of its own. A taker locks the queue's
row in `turns`, counts the capacity that the limits leave, and takes tasks from the keys in round-robin order. Claimers
of one queue wait for one another; on a Galera cluster, where a lock ends at its server, the second of two that wrote
that row is undone at its commit. Completing and enqueuing wait for nothing.

The order of the keys: the highest priority first; within it, the keys after the one that was served last, then the
others. The index `tasks_turns` has that order, and is read a page at a time; a page that one key fills is followed by
the next key. So a million tasks of one key cost no more than a page of them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.limits import LimitCapacity
from peerd.store.schema.tables import CLAIM_ORDER, tasks, turns
from peerd.store.statements import CompiledStatement, insert_if_absent
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import is_on_duty, is_open, is_startable
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, TaskKind, by_index
from peerd.store.tasks.rows import BATCH, lock_available

T = TypeVar("T")

MAX_KEYS: Final = 300
"""Keys of a priority that one claim reads: each may cost a statement. The next claim continues after them."""
PAGE: Final = 32
"""Tasks that are read at a time beyond the number wanted."""
MAX_LEVELS: Final = 50
"""Priorities that are read key by key. Beyond, the database leaves out the keys that may not start."""
PAGE_BEYOND_LEVELS: Final = 100
"""Tasks that are then read at a time."""
PAGE_WHEN_BLOCKED: Final = 4
"""Tasks in a page where all keys of the page before the last could not start: there may be many such keys."""
LOWEST_RANK: Final = -(2**63)
_RANK: Final = sa.bindparam("rank", type_=sa.BigInteger())
_MOST: Final = sa.bindparam("most", type_=sa.Integer())
_WITHIN_KEY: Final = (tasks.c.failures, tasks.c.due_at, tasks.c.id)


def take_turn(
    connection: Connection,
    claimer: Claimer,
    queue: str,
    lanes: Sequence[int],
    limit: int,
    write: Callable[[Sequence[int]], list[tuple[T, str]]],
    *,
    worst_rank: int | None = None,
) -> tuple[list[T], float | None]:
    """Choose the next tasks of a queue, as many as its limits allow, and write them.

    Args:
        connection: in a transaction.
        claimer: the process.
        queue: a limited queue, or one with tasks that have keys.
        lanes: from which it may take.
        limit: tasks at the most.
        write: takes the tasks of these ids; returns those that it has taken, and their keys.
        worst_rank: beyond which no task is taken.

    Returns:
        what was taken, in round-robin order, and `LimitedClaim.again_in`.
    """
    number, last_key = _lock_queue(connection, queue)
    if not connection.execute(_may_take(queue), claimer.parameters()).scalar():
        return [], None
    capacity = LimitCapacity(connection, queue)
    wanted = min(limit, capacity.for_queue())
    if wanted <= 0:
        return [], capacity.again_in
    chosen, served = _choose_unlocked_ids(connection, queue, lanes, last_key, capacity, wanted, worst_rank)
    won = write(chosen) if chosen else []
    if won:
        capacity.record_starts(number, Counter(key for _, key in won))
    if served != last_key:
        connection.execute(sa.update(turns).where(turns.c.queue == queue).values(last_key=served))
    return [taken for taken, _ in won], capacity.again_in


def take_turn_for(
    connection: Connection, queue: str, key: str, task_id: int, write: Callable[[Sequence[int]], list[tuple[T, str]]]
) -> list[T]:
    """Take one task, named by its id, if the limits let it start; see `take_turn`."""
    number, _ = _lock_queue(connection, queue)
    capacity = LimitCapacity(connection, queue)
    won = write([task_id]) if min(capacity.for_queue(), capacity.for_key(key)) > 0 else []
    if won:
        capacity.record_starts(number, {key: 1})
    return [taken for taken, _ in won]


def _lock_queue(connection: Connection, queue: str) -> tuple[int, str]:
    """Lock a queue's row in `turns`: the number of this turn, and the key that was served last."""
    mine = turns.c.queue == queue
    begin = sa.update(turns).where(mine).values(turn=turns.c.turn + 1)
    if not connection.execute(begin).rowcount:
        insert_if_absent(connection, turns, [{"queue": queue}], key=("queue",))
        connection.execute(begin)
    row = connection.execute(sa.select(turns.c.turn, turns.c.last_key).where(mine)).one()
    return row.turn, row.last_key


def _choose_unlocked_ids(
    connection: Connection,
    queue: str,
    lanes: Sequence[int],
    after: str,
    capacity: LimitCapacity,
    wanted: int,
    worst_rank: int | None,
) -> tuple[list[int], str]:
    """The ids to claim, locked, and the key after which the next turn begins.

    A row that another session has locked would be waited for, and the whole queue with it. If one was chosen, the ids
    are chosen again among the rows that are not locked.
    """
    read = partial(KeyRoundRobin, connection, queue, lanes, after=after, with_unkeyed=capacity.queue_is_limited)
    chosen, served = _choose_ids(read(page=wanted + PAGE), capacity, wanted, worst_rank)
    if len(lock_available(connection, chosen)) < len(chosen):
        chosen, served = _choose_ids(read(page=BATCH, skip_locked_rows=True), capacity, wanted, worst_rank)
    return chosen, served


def _choose_ids(
    keys: KeyRoundRobin, capacity: LimitCapacity, wanted: int, worst_rank: int | None
) -> tuple[list[int], str]:
    """The ids to claim, and the key after which the next turn begins."""
    chosen: list[int] = []
    chosen_of: Counter[str] = Counter()
    last, left_after = keys.after, ""
    for rank, level in groupby(keys, key=lambda candidates: candidates.rank):
        if worst_rank is not None and rank > worst_rank:
            break
        turn: list[tuple[KeyCandidates, int]] = []
        seen: set[str] = set()  # MySQL's collation orders keys unlike Python: one may come twice
        for number, candidates in enumerate(level, start=1):
            last = candidates.key
            if last in seen:
                continue
            seen.add(last)
            capacity_left = capacity.for_key(last) - chosen_of[last]
            if capacity_left > 0:
                turn.append((candidates, capacity_left))
            else:
                keys.blocked.add(last)
            if len(turn) == wanted - len(chosen):
                break
            if number == MAX_KEYS:
                keys.left = rank
                left_after = left_after or last
                break
        for key, task_id in _deal_round_robin(turn, wanted - len(chosen)):
            chosen.append(task_id)
            chosen_of[key] += 1
        if len(chosen) == wanted:
            break
    return chosen, left_after or (last if chosen else keys.after)


def _deal_round_robin(turn: Sequence[tuple[KeyCandidates, int]], wanted: int) -> Iterator[tuple[str, int]]:
    """Keys and ids of a task of each key, then of a second one of each, and so on."""
    rounds = (
        (candidates.key, candidates.tasks[number][-1])
        for number in range(wanted)
        for candidates, capacity_left in turn
        if number < min(capacity_left, len(candidates.tasks))
    )
    return islice(rounds, wanted)


@lru_cache(maxsize=256)
def _may_take(queue: str) -> sa.Select[Any]:
    return sa.select(sa.literal(1)).where(is_on_duty(), is_open(queue))


# ---------------------------------------------------------------- the next keys of a turn


class KeyCandidates(NamedTuple):
    """A key, its position in the round-robin order, and its first tasks: the columns of their order, ids last."""

    rank: int
    is_after_wrap: bool
    key: str
    tasks: list[tuple[Any, ...]]


@dataclass(eq=False)
class KeyRoundRobin:
    """Iterates over the keys of one queue.

    Attributes:
        connection: in a transaction that has locked the queue's turn.
        queue: its name.
        lanes: those that the claimer may take from.
        after: the key that was served last.
        page: tasks that are read at a time.
        with_unkeyed: include the tasks without a key; together they are as one key, an empty one.
        skip_locked_rows: leave out the tasks that another session has locked, and lock the others.
        blocked: keys whose tasks may not start now; the caller adds to them.
        left: the rank whose further keys are not wanted; set by the caller.
    """

    connection: Connection
    queue: str
    lanes: Sequence[int]
    _: KW_ONLY
    after: str
    page: int
    with_unkeyed: bool
    skip_locked_rows: bool = False
    blocked: set[str] = field(default_factory=set)
    left: int | None = None

    def __iter__(self) -> Iterator[KeyCandidates]:
        lanes = [self._keys_of(lane) for lane in self.lanes]
        if self.with_unkeyed:
            lanes += [self._unkeyed_of(lane) for lane in self.lanes]
        merged = heapq.merge(*lanes, key=lambda found: found[:3])
        for (rank, is_after_wrap, key), same in groupby(merged, key=lambda found: found[:3]):
            yield KeyCandidates(rank, is_after_wrap, key, sorted(task for found in same for task in found.tasks))

    def _keys_of(self, lane: int) -> Iterator[KeyCandidates]:
        rank = LOWEST_RANK
        for _ in range(MAX_LEVELS):
            found = _NEXT_RANK.run(self.connection, queue=self.queue, lane=lane, rank=rank).scalar()
            if found is None:
                return
            rank = int(found)
            yield from self._level(lane, rank, is_after_wrap=False)
            if self.after:
                yield from self._level(lane, rank, is_after_wrap=True)
        yield from self._beyond_levels(lane, rank)

    def _level(self, lane: int, rank: int, *, is_after_wrap: bool) -> Iterator[KeyCandidates]:
        values: dict[str, Any] = {"queue": self.queue, "lane": lane, "rank": rank, "most": self.page}
        values |= {"until": self.after} if is_after_wrap else {}
        statement, position = (_PAGE_AFTER_WRAP, "") if is_after_wrap else (_PAGE, self.after)
        before: set[str] = set()
        keys: set[str] = set()
        while self.left != rank:
            values["most"] = PAGE_WHEN_BLOCKED if before and before <= self.blocked else self.page
            rows = statement.run(self.connection, **values, after=position).all()
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
            values = {"queue": self.queue, "lane": lane, "rank": rank, "blocked": sorted(self.blocked)}
            for lower, key, *order in self._available(self.connection.execute(_LOWER_RANKS, values).all()):
                yield KeyCandidates(int(lower), False, str(key), [tuple(order)])

    def _unkeyed_of(self, lane: int) -> Iterator[KeyCandidates]:
        rows = _UNKEYED.run(self.connection, queue=self.queue, lane=lane, most=self.page).all()
        for rank, mine in groupby(self._available(rows), key=lambda row: int(row[0])):
            yield KeyCandidates(rank, True, "", [tuple(row[1:]) for row in mine])

    def _available(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows of a page, whose last columns are the ids, that can be written without waiting for a lock."""
        if not self.skip_locked_rows:
            return rows
        available = set(lock_available(self.connection, [row[-1] for row in rows]))
        return [row for row in rows if row[-1] in available]


def _select_pending(kind: TaskKind, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    queue, lane = sa.bindparam("queue", type_=sa.String()), sa.bindparam("lane", type_=sa.Integer())
    return by_index(sa.select(*columns).where(kind.of(queue), tasks.c.lane == lane), kind.index)


def _text(name: str) -> sa.BindParameter[str]:
    return sa.bindparam(name, type_=sa.String())


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
