"""Heads of lanes on MariaDB and MySQL.

A derived table cannot refer to another one there, a subquery in a list of columns takes 30 µs for each row, and GROUP
BY walks through all tasks of a queue. So one statement is a union of what is asked of each queue and lane, and of the
state of the queues, which Python compares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from peerd.domain.limit import WHOLE_QUEUE
from peerd.store.schema.tables import limits, queues, tasks
from peerd.store.statements import CompiledStatement, DriverConnection, queue_in_list, run_union
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import MAX_QUEUES, LaneRanks, Lanes, head_of_lane, is_on_duty, is_paused
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, TaskKind, by_index
from peerd.store.tasks.rows import batches

FEW_QUEUES: Final = 16
"""Queues up to which the heads of all lanes are read at once; beyond, the lanes with the best tasks are found first."""
MAX_HEADS: Final = 64
"""Lanes of queues in one statement."""

DIGITS: Final = 20
"""Of the greatest number that MySQL has."""

Head = tuple[str, int]
"""A queue and a lane."""


def candidates(
    connection: DriverConnection, claimer: Claimer, lanes: Lanes, limit: int, *, beside_limits: bool
) -> list[int]:
    """The ids of the first tasks of the claimer's queues that count for no limit, best first, read without locks.

    Args:
        connection: in a transaction, or committing each statement.
        claimer: one that is not on duty finds none.
        lanes: those to take from.
        limit: tasks at the most.
        beside_limits: without it, none are found while there are tasks that may count for a limit.
    """
    if len(claimer.queues) <= FEW_QUEUES:
        heads = [(queue, lane) for queue in claimer.queues for lane in lanes]
        return _first_ids(_read_heads(connection, claimer, heads, limit, beside_limits=beside_limits), limit)
    ranks = first_ranks(connection, claimer, _queues_with_tasks(connection, claimer.queues), lanes)
    if not beside_limits and any(one.limited is not None for one in ranks):
        return []
    found: list[str] = []
    for heads in batches(best_heads(ranks, limit), rows=MAX_HEADS):
        found += _read_heads(connection, claimer, heads, limit, beside_limits=True)
    return _first_ids(found, limit)


def best_heads(ranks: Sequence[LaneRanks], limit: int) -> list[Head]:
    """The lanes among which the first ``limit`` tasks are: each has one at least.

    >>> from functools import partial
    >>> one = partial(LaneRanks, is_limited=False, keyed=None, unkeyed=None)
    >>> best_heads([one("d", 0, plain=3), one("b", 0, plain=2), one("c", 0, plain=2), one("a", 0, plain=1)], 2)
    [('a', 0), ('b', 0), ('c', 0)]
    """
    heads = sorted((one.plain, one.queue, one.lane) for one in ranks if one.plain is not None)
    worst = heads[min(limit, len(heads)) - 1][0] if heads else None
    return [(queue, lane) for rank, queue, lane in heads if worst is None or rank <= worst]


def first_ranks(connection: DriverConnection, claimer: Claimer, names: Sequence[str], lanes: Lanes) -> list[LaneRanks]:
    """The first ranks of the lanes of these queues that have tasks."""
    of_lanes = [{"queue": queue, "lane": lane, "limit": 1} for queue in names for lane in lanes]
    parts = [(part, values) for part in (_FIRST_KEYED, _FIRST_UNKEYED, _HEAD) for values in of_lanes]
    state, found = _read_with_state(connection, claimer, names, parts)
    ranks: dict[Head, dict[str, int]] = defaultdict(dict)
    for kind, queue, lane, rank in found:
        if rank is not None and (kind != "plain" or state.may_take_from(queue)):
            ranks[queue, int(lane)][kind] = int(rank)
    return [
        LaneRanks(queue, lane, queue in state.limited, *map(of_kind.get, ("keyed", "unkeyed", "plain")))
        for (queue, lane), of_kind in ranks.items()
    ]


def _first_ids(places: Sequence[str], limit: int) -> list[int]:
    """The ids of the first tasks by their `_PLACE`."""
    return [int(place[-DIGITS:]) for place in sorted(places)[:limit]]


def _read_heads(
    connection: DriverConnection, claimer: Claimer, heads: Sequence[Head], limit: int, *, beside_limits: bool
) -> list[str]:
    names = list(dict.fromkeys(queue for queue, _ in heads))
    only = names[0] if len(names) == 1 else None
    parts = [
        (_TASKS, {"queue": queue, "lane": lane, "limit": limit, "named": queue if only is None else None})
        for queue, lane in heads
    ]
    if not beside_limits:
        parts += [(_HAS_KEYED, {"queue": queue}) for queue in names]
    state, found = _read_with_state(connection, claimer, names, parts)
    if not beside_limits and any(row[0] == "keyed" or row[1] in state.limited for row in found if row[3] is not None):
        return []
    return [row[3] for row in found if row[0] is None and state.may_take_from(only or row[1])]


class _State(NamedTuple):
    """Whether the claimer is on duty, and its queues that are paused, and that have a limit as a whole."""

    duty: set[str]
    paused: set[str]
    limited: set[str]

    def may_take_from(self, queue: str) -> bool:
        return bool(self.duty) and queue not in self.paused and queue not in self.limited


def _read_with_state(
    connection: DriverConnection,
    claimer: Claimer,
    names: Sequence[str],
    parts: Sequence[tuple[CompiledStatement, dict[str, Any]]],
) -> tuple[_State, list[Sequence[Any]]]:
    """The state of these queues, and the rows of the parts, in one statement."""
    if not names:
        return _State(set(), set(), set()), []
    rows = run_union(connection, [(_STATE, {**claimer.parameters(), "queues": list(names)}), *parts])
    state = _State(*({str(row[1]) for row in rows if row[0] == kind} for kind in _State._fields))
    return state, [row for row in rows if row[0] not in _State._fields]


def _queues_with_tasks(connection: DriverConnection, names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for some in batches(names, rows=MAX_QUEUES):
        parts = [(part, {"queue": queue}) for queue in some for part in (_HAS_UNKEYED, _HAS_KEYED)]
        found += [row[1] for row in run_union(connection, parts) if row[3] is not None]
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------- parts of the union: kind, queue, lane, place or rank


_QUEUE: Final = sa.bindparam("queue", type_=sa.String())
_LANE: Final = sa.bindparam("lane", type_=sa.Integer())
_NOTHING: Final[sa.ColumnElement[Any]] = sa.literal_column("0")


def _digits(value: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    """A number that is not negative, as a text that sorts as it does."""
    return sa.func.lpad(value, sa.literal_column(str(DIGITS)), sa.literal_column("'0'"))


def _row(kind: str, queue: Any, lane: Any, rank: Any = _NOTHING) -> sa.Select[Any]:
    columns = {"kind": sa.literal_column(f"'{kind}'"), "queue": queue, "lane": lane, "place": rank}
    return sa.select(*(column.label(name) for name, column in columns.items()))


def _state() -> CompiledStatement:
    duty = _row("duty", sa.literal_column("''"), _NOTHING).where(is_on_duty())
    paused = _row("paused", queues.c.name, _NOTHING).where(queue_in_list(queues.c.name), is_paused())
    is_whole = limits.c.limit_key == sa.literal_column(f"'{WHOLE_QUEUE}'")
    limited = _row("limited", limits.c.queue, _NOTHING).where(queue_in_list(limits.c.queue), is_whole)
    return CompiledStatement(sa.union_all(duty, paused, limited))


def _least(
    kind: str, value: sa.Column[int], pending: TaskKind, *conditions: Any, lane: Any = _NOTHING
) -> CompiledStatement:
    """The least value of the next column of an index: it is looked up while the statement is planned."""
    least = _row(kind, _QUEUE, lane, sa.func.min(value)).where(pending.of(_QUEUE), *conditions)
    return CompiledStatement(by_index(least, pending.index))


_STATE: Final = _state()
_PLACE: Final = sa.func.concat(
    _digits(tasks.c.claim_rank + sa.literal_column(str(2**63))),
    _digits(tasks.c.failures),
    tasks.c.due_at,
    _digits(tasks.c.id),
)
"""One text that sorts as the values of `CLAIM_ORDER` do, and ends with the id: each value costs a client 0.4 µs."""
_TASKS: Final = CompiledStatement(
    head_of_lane(_QUEUE, _LANE, sa.null(), sa.bindparam("named", type_=sa.String()), sa.null(), _PLACE)
)
"""The first tasks of a lane. NULL costs a client nothing: the kind, and a queue that is alone."""
_HEAD: Final = CompiledStatement(
    head_of_lane(_QUEUE, _LANE, sa.literal_column("'plain'"), _QUEUE, _LANE, tasks.c.claim_rank)
)
_FIRST_KEYED: Final = _least("keyed", tasks.c.claim_rank, PENDING_WITH_KEY, tasks.c.lane == _LANE, lane=_LANE)
_FIRST_UNKEYED: Final = _least("unkeyed", tasks.c.claim_rank, PENDING_WITHOUT_KEY, tasks.c.lane == _LANE, lane=_LANE)
_HAS_KEYED: Final = _least("keyed", tasks.c.lane, PENDING_WITH_KEY)
_HAS_UNKEYED: Final = _least("unkeyed", tasks.c.lane, PENDING_WITHOUT_KEY)
