"""Limited claims: of tasks that have keys, and of all tasks of a queue that has a limit of its own.

A limited claim locks the queue's row in `turns`, counts the capacity that the limits leave, and takes tasks from the
keys in round-robin order. The limited claims of one queue wait for one another; on a Galera cluster, where a lock ends
at its server, the second of two that wrote that row is undone at its commit. Completing and enqueuing wait for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, islice
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import Task
from peerd.store.claim.candidates import claiming_allowed, queue_is_limited, select_candidates
from peerd.store.claim.claimer import NODE_PARAMETER, Claimer, claimer_parameters, lanes_for
from peerd.store.claim.compare_and_set import claim_ids
from peerd.store.limits.capacity import LimitCapacity
from peerd.store.limits.key_round_robin import KeyCandidates, KeyRoundRobin
from peerd.store.schema.tables import tasks, turns
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, PendingKind, by_index
from peerd.store.tasks.rows import BATCH, insert_if_absent, lock_available

T = TypeVar("T")

MAX_KEYS: Final = 300
"""Keys of a priority that one claim reads: each may cost a statement. The next claim continues after them."""
PAGE: Final = 32
"""Tasks that are read at a time beyond the number wanted."""
PLAIN: Final = "plain"
ANY_NODE: Final[sa.ColumnElement[int]] = sa.literal_column("0", sa.Integer())


class LimitedClaim(msgspec.Struct, frozen=True):
    """The result of a limited claim.

    Attributes:
        tasks: in round-robin order.
        again_in: seconds until a rate without capacity lets more of them start; None where there is none.
    """

    tasks: list[Task]
    again_in: float | None = None


class ClaimableWork(msgspec.Struct, frozen=True):
    """The kinds of claim for which there are tasks: by queue, the rank of the first task.

    A rank is a priority with its sign turned: the lower the sooner.

    Attributes:
        limited: tasks for a limited claim.
        quarantined: tasks that have crashed a process and must run alone.
        quarantined_limited: such tasks for a limited claim.
        plain: whether there are tasks for a plain claim.
    """

    limited: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    quarantined_limited: dict[str, int] = {}
    plain: bool = False


def find_claimable(connection: Connection, claimer: Claimer) -> ClaimableWork:
    """Find which kinds of claim there are tasks for, in one statement; the limits are not read."""
    statement = _first_of_each(claimer.queues, claimer.node_id)
    rows = statement.run(connection, **claimer_parameters(claimer), limit=1).mappings().all()
    found = ClaimableWork(plain=any(row["kind"] == PLAIN for row in rows))
    for row in rows:
        if row["kind"] != PLAIN:
            queue, rank = claimer.queues[row["queue_index"]], int(row["claim_rank"])
            ranks: dict[str, int] = getattr(found, row["kind"])
            ranks[queue] = min(rank, ranks.get(queue, rank))
    return found


def claim_limited(
    connection: Connection, claimer: Claimer, queue: str, *, token: int, limit: int, quarantined: bool = False
) -> LimitedClaim:
    """Claim the next tasks of a queue, as many as its limits allow.

    The connection is in a transaction of its own; for the arguments see `claim`.
    """
    lanes = lanes_for(claimer, quarantined=quarantined)
    of_this_queue = msgspec.structs.replace(claimer, queues=(queue,))

    def write(ids: Sequence[int]) -> list[tuple[Task, str]]:
        won = claim_ids(connection, of_this_queue, lanes, token, ids, limited=True)
        return [(task, task.limit_key or "") for task in won]

    return LimitedClaim(*take_turn(connection, claimer, queue, lanes, limit, write))


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
    if not connection.execute(_claiming_allowed(queue), claimer_parameters(claimer)).scalar():
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


def take_in_turn(
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
def _claiming_allowed(queue: str) -> sa.Select[Any]:
    return sa.select(sa.literal(1)).where(claiming_allowed(queue))


@lru_cache(maxsize=256)
def _first_of_each(serves: tuple[str, ...], node_id: int) -> CompiledStatement:
    """The first task in each lane of each queue: the field of `ClaimableWork`, the index of its queue, and its rank.

    The tasks of a plain claim stand once for all queues, with neither.
    """
    kind, nothing = sa.literal_column(f"'{PLAIN}'", sa.Text()), sa.literal_column("0", sa.Integer())
    unlimited_row = sa.select(kind.label("kind"), nothing.label("queue_index"), nothing.label("claim_rank"))
    heads = [unlimited_row.select_from(select_candidates(serves, (0, node_id)).subquery())]
    for index, queue in enumerate(serves):
        for lane in (ANY_NODE, NODE_PARAMETER):
            quarantined = sa.literal_column("-1", sa.Integer()) - lane
            heads += [
                _first(index, "limited", PENDING_WITH_KEY, queue, lane),
                _first(index, "limited", PENDING_WITHOUT_KEY, queue, lane, queue_is_limited(queue)),
                _first(index, "quarantined_limited", PENDING_WITH_KEY, queue, quarantined),
                _first(index, "quarantined", PENDING_WITHOUT_KEY, queue, quarantined),
            ]
    return CompiledStatement(sa.union_all(*(sa.select(head.subquery()) for head in heads)))


def _first(
    index: int,
    field: str,
    pending: PendingKind,
    queue: str,
    lane: sa.ColumnElement[int],
    *conditions: sa.ColumnElement[bool],
) -> sa.Select[Any]:
    kind: sa.Label[Any] = sa.literal_column(f"'{field}'").label("kind")
    queue_index: sa.Label[Any] = sa.literal_column(str(index)).label("queue_index")
    conditions = (pending.of(sa.literal(queue)), tasks.c.lane == lane, *conditions)
    first = sa.select(kind, queue_index, tasks.c.claim_rank).where(*conditions).order_by(tasks.c.claim_rank).limit(1)
    return by_index(first, pending.index)
