"""Turns: taking the tasks of a queue that count for a limit, one taker after another.

They are the tasks that have limit keys, and all tasks of a queue that has a limit of its own. A taker locks the queue's
row in `turns`, counts the capacity that the limits leave, and takes tasks from the keys in round-robin order. Claimers
of one queue wait for one another; on a Galera cluster, where a lock ends at its server, the second of two that
wrote that row is undone at its commit. Completing and enqueuing wait for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, islice
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.limits.capacity import LimitCapacity
from peerd.store.limits.key_round_robin import KeyCandidates, KeyRoundRobin
from peerd.store.schema.tables import turns
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import is_on_duty, is_open
from peerd.store.tasks.rows import BATCH, lock_available
from peerd.store.upserts import insert_if_absent

T = TypeVar("T")

MAX_KEYS: Final = 300
"""Keys of a priority that one claim reads: each may cost a statement. The next claim continues after them."""
PAGE: Final = 32
"""Tasks that are read at a time beyond the number wanted."""


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
    if not connection.execute(_may_take(queue), claimer.duty_parameters()).scalar():
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
    """One task of each key, then a second one of each, and so on: keys and ids."""
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
