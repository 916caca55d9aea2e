"""Claiming by turns: tasks that have keys, and all tasks of a queue that has a limit of its own.

Whoever claims so locks the queue's row in `turns`, sees what the limits leave, and goes through the keys in their
turns. The claims of one queue wait for one another; on a Galera cluster, where a lock ends at its server, the second of
two that wrote that row is undone at its commit. Nothing else waits: not those who complete, nor those who enqueue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import Task
from peerd.store.claim.candidates import claiming_allowed, queue_is_limited, select_candidates
from peerd.store.claim.claimer import NODE_PARAMETER, Claimer, Lanes, claimer_parameters, lanes_for
from peerd.store.claim.compare_and_set import claim_ids, lock_available_ids
from peerd.store.limits.capacity import LimitCapacity
from peerd.store.limits.key_round_robin import KeyCandidates, KeyRoundRobin
from peerd.store.schema.tables import tasks, turns
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, PendingKind, by_index
from peerd.store.tasks.rows import BATCH, insert_if_absent

MAX_KEYS: Final = 300
"""Keys of a priority that one claim looks at: each may cost a statement. The next one goes on after them."""
PAGE: Final = 32
"""Tasks that are read at a time, beside those that are wanted."""


class LimitedClaim(msgspec.Struct, frozen=True):
    """What a claim by turns brought.

    Attributes:
        tasks: in the order of their turns.
        again_in: seconds until a rate that was in the way lets more of them start; None where none was.
    """

    tasks: list[Task]
    again_in: float | None = None


class ClaimableWork(msgspec.Struct, frozen=True):
    """What waits: beside the tasks that a plain claim takes, queues, and the rank of the first task in each.

    A rank is a priority with its sign turned: the lower the sooner.

    Attributes:
        limited: what is claimed by turns.
        crashed: what has crashed a process, and so must run alone.
        quarantined_limited: what has, and is claimed by turns.
        plain: whether there is anything that a plain claim takes.
    """

    limited: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    quarantined_limited: dict[str, int] = {}
    plain: bool = False


def find_claimable(connection: Connection, claimer: Claimer) -> ClaimableWork:
    """Look what waits, in one statement; the limits are not asked.

    Args:
        connection: reading.
        claimer: who asks, and which queues it serves.
    """
    rows = (
        _first_of_each(claimer.queues, claimer.node_id)
        .run(connection, **claimer_parameters(claimer), limit=1)
        .mappings()
        .all()
    )
    found = ClaimableWork(plain=any(row["what"] == PLAIN for row in rows))
    for row in rows:
        if row["what"] != PLAIN:
            queue, rank = claimer.queues[row["place"]], int(row["claim_rank"])
            ranks: dict[str, int] = getattr(found, row["what"])
            ranks[queue] = min(rank, ranks.get(queue, rank))
    return found


def claim_limited(
    connection: Connection, claimer: Claimer, queue: str, *, token: int, limit: int, quarantined: bool = False
) -> LimitedClaim:
    """Claim the next tasks of a queue whose turn it is, as many as its limits allow.

    Args:
        connection: in a transaction of its own.
        claimer: who.
        queue: one that it serves.
        token: from `new_token`; a new one for each claim.
        limit: tasks at the most.
        quarantined: take tasks that have crashed a process, as `claim` does.
    """
    number, last_key = _lock_queue(connection, queue)
    if not connection.execute(_claiming_allowed(queue), claimer_parameters(claimer)).scalar():
        return LimitedClaim([])
    capacity = LimitCapacity(connection, queue)
    wanted = min(limit, capacity.for_queue())
    if wanted <= 0:
        return LimitedClaim([], capacity.again_in)
    lanes = lanes_for(claimer, quarantined=quarantined)
    chosen, served = _choose_unlocked_ids(connection, queue, lanes, last_key, capacity, wanted)
    of_this_queue = msgspec.structs.replace(claimer, queues=(queue,))
    won = claim_ids(connection, of_this_queue, lanes, token, chosen, limited=True) if chosen else []
    if won:
        capacity.record_starts(number, Counter(task.limit_key or "" for task in won))
    if served != last_key:
        connection.execute(sa.update(turns).where(turns.c.queue == queue).values(last_key=served))
    return LimitedClaim(won, capacity.again_in)


def _lock_queue(connection: Connection, queue: str) -> tuple[int, str]:
    """Begin the next turn of a queue: its number, and the key that was served last."""
    mine = turns.c.queue == queue
    begin = sa.update(turns).where(mine).values(turn=turns.c.turn + 1)
    if not connection.execute(begin).rowcount:
        insert_if_absent(connection, turns, [{"queue": queue}], key=("queue",))
        connection.execute(begin)
    row = connection.execute(sa.select(turns.c.turn, turns.c.last_key).where(mine)).one()
    return row.turn, row.last_key


def _choose_unlocked_ids(
    connection: Connection, queue: str, lanes: Lanes, after: str, capacity: LimitCapacity, wanted: int
) -> tuple[list[int], str]:
    """The ids to claim, locked, and the key after which the next turn begins.

    A row that the transaction of another session has locked would be waited for, and the queue with it. Where one was
    chosen, they are chosen again, among the rows that nobody has locked.
    """
    keys = KeyRoundRobin(
        connection, queue, lanes, after=after, page=wanted + PAGE, with_unkeyed=capacity.queue_is_limited
    )
    chosen, served = _choose_ids(keys, capacity, wanted)
    if len(lock_available_ids(connection, chosen)) < len(chosen):
        keys = KeyRoundRobin(
            connection,
            queue,
            lanes,
            after=after,
            page=BATCH,
            with_unkeyed=capacity.queue_is_limited,
            skip_locked_rows=True,
        )
        chosen, served = _choose_ids(keys, capacity, wanted)
    return chosen, served


def _choose_ids(keys: KeyRoundRobin, capacity: LimitCapacity, wanted: int) -> tuple[list[int], str]:
    """The ids to claim, and the key after which the next turn begins."""
    chosen: list[int] = []
    chosen_of: Counter[str] = Counter()
    last, left_after = keys.after, ""
    for rank, level in groupby(keys, key=lambda waiting: waiting.rank):
        looked_at = 0
        turn: list[tuple[KeyCandidates, int]] = []
        seen: set[str] = set()  # by MySQL's order of keys, which is not quite ours, one may come twice
        for waiting in level:
            looked_at, last = looked_at + 1, waiting.key
            if waiting.key in seen:
                continue
            seen.add(waiting.key)
            capacity_left = capacity.for_key(waiting.key) - chosen_of[waiting.key]
            if capacity_left > 0:
                turn.append((waiting, capacity_left))
            else:
                keys.blocked.add(waiting.key)
            if len(turn) == wanted - len(chosen):
                break
            if looked_at == MAX_KEYS:
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
    left = wanted
    for number in range(wanted):
        for waiting, capacity_left in turn:
            if left and number < min(capacity_left, len(waiting.tasks)):
                yield waiting.key, waiting.tasks[number][-1]
                left -= 1


@lru_cache(maxsize=256)
def _claiming_allowed(queue: str) -> sa.Select[Any]:
    return sa.select(sa.literal(1)).where(claiming_allowed(queue))


PLAIN: Final = "plain"
ANY_NODE: Final[sa.ColumnElement[int]] = sa.literal_column("0", sa.Integer())


@lru_cache(maxsize=256)
def _first_of_each(serves: tuple[str, ...], node_id: int) -> CompiledStatement:
    """What waits in each lane of each queue: which of `ClaimableWork` it is, the place of its queue, and its rank.

    What a plain claim takes stands once for all queues, and has neither.
    """
    what, nothing = sa.literal_column(f"'{PLAIN}'", sa.Text()), sa.literal_column("0", sa.Integer())
    unlimited_row = sa.select(what.label("what"), nothing.label("place"), nothing.label("claim_rank"))
    heads = [unlimited_row.select_from(select_candidates(serves, (0, node_id)).subquery())]
    for place, queue in enumerate(serves):
        for lane in (ANY_NODE, NODE_PARAMETER):
            quarantined = sa.literal_column("-1", sa.Integer()) - lane
            heads += [
                _first(place, "limited", PENDING_WITH_KEY, queue, lane),
                _first(place, "limited", PENDING_WITHOUT_KEY, queue, lane, queue_is_limited(queue)),
                _first(place, "quarantined_limited", PENDING_WITH_KEY, queue, quarantined),
                _first(place, "quarantined", PENDING_WITHOUT_KEY, queue, quarantined),
            ]
    return CompiledStatement(sa.union_all(*(sa.select(head.subquery()) for head in heads)))


def _first(
    place: int,
    what: str,
    kind: PendingKind,
    queue: str,
    lane: sa.ColumnElement[int],
    *conditions: sa.ColumnElement[bool],
) -> sa.Select[Any]:
    labels: list[sa.ColumnElement[Any]] = [sa.literal_column(f"'{what}'"), sa.literal_column(str(place))]
    columns = [one.label(name) for one, name in zip(labels, ("what", "place"), strict=True)]
    found = sa.select(*columns, tasks.c.claim_rank).where(kind.of(sa.literal(queue)), tasks.c.lane == lane, *conditions)
    return by_index(found.order_by(tasks.c.claim_rank).limit(1), kind.index)


def clear_statement_cache() -> None:
    """Make the statements anew, for a test that has changed what they are made of."""
    _first_of_each.cache_clear()
    _claiming_allowed.cache_clear()
