"""The backlog of a claimer: which of its queues have tasks, of what kind, and with which rank at the head.

A rank is a priority with its sign turned: the lower the sooner. One statement reads the first rank of each lane of each
queue; nothing is written, and the limits themselves are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.tables import tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements import CompiledStatement, DriverConnection, list_parameter
from peerd.store.take import on_mysql
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import (
    MAX_QUEUES,
    LaneRanks,
    Lanes,
    all_lanes,
    first_rank,
    head_of_lane,
    is_limited,
    is_on_duty,
    is_open,
    lane_table,
    queue_table,
)
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY
from peerd.store.tasks.rows import batches


class ClaimableWork(msgspec.Struct, frozen=True):
    """The kinds of claim for which there are tasks: by queue, the rank of the first task.

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


class ReservableWork(NamedTuple):
    """The rank of the first job that counts for limits, by queue, and of the first one that counts for none."""

    limited: dict[str, int]
    plain: int | None


def find_claimable(connection: Connection, claimer: Claimer) -> ClaimableWork:
    """Find which kinds of claim there are tasks for."""
    found = ClaimableWork()
    plain = False
    for head in _first_ranks(DriverConnection(connection), claimer):
        if head.lane >= 0:
            plain = plain or head.plain is not None
            _keep_least(found.limited, head.queue, head.limited)
        else:
            _keep_least(found.quarantined, head.queue, head.unkeyed)
            _keep_least(found.quarantined_limited, head.queue, head.keyed)
    return msgspec.structs.replace(found, plain=plain)


def find_reservable(connection: DriverConnection, claimer: Claimer) -> ReservableWork:
    """Find what a queue client may reserve; the limits are not read."""
    limited: dict[str, int] = {}
    plain: list[int] = []
    for head in _first_ranks(connection, claimer):
        _keep_least(limited, head.queue, head.limited)
        plain += [] if head.plain is None else [head.plain]
    return ReservableWork(limited, min(plain, default=None))


def _keep_least(ranks: dict[str, int], queue: str, rank: int | None) -> None:
    if rank is not None:
        ranks[queue] = min(rank, ranks.get(queue, rank))


def _first_ranks(connection: DriverConnection, claimer: Claimer) -> Iterable[LaneRanks]:
    lanes, kind = all_lanes(claimer.node_id), connection.dialect.name
    for queues in batches(dict.fromkeys(claimer.queues), rows=MAX_QUEUES):
        if kind in MYSQL:
            yield from on_mysql.first_ranks(connection, claimer, queues, lanes)
        else:
            yield from _read_first_ranks(connection, claimer, queues, lanes)


def _read_first_ranks(
    connection: DriverConnection, claimer: Claimer, queues: Sequence[str], lanes: Lanes
) -> Iterable[LaneRanks]:
    kind = connection.dialect.name
    listed = list_parameter(connection.dialect, queues)
    rows = _first_ranks_statement(kind, lanes).run(connection, **claimer.parameters(), queues=listed).all()
    return [LaneRanks(*row) for row in rows]


@lru_cache(maxsize=16)
def _first_ranks_statement(kind: str, lanes: Lanes) -> CompiledStatement:
    queue, lane = queue_table(kind).subquery("queue_name"), lane_table(lanes)
    may = sa.and_(is_on_duty(), is_open(queue.c.queue), sa.not_(is_limited(queue.c.queue)))
    plain = head_of_lane(queue.c.queue, lane.c.lane, tasks.c.claim_rank, limit=sa.literal_column("1")).where(may)
    firsts = [first_rank(pending, queue.c.queue, lane.c.lane) for pending in (PENDING_WITH_KEY, PENDING_WITHOUT_KEY)]
    ranks = [one.correlate(queue, lane).scalar_subquery() for one in (*firsts, plain)]
    columns = (queue.c.queue, lane.c.lane, is_limited(queue.c.queue), *ranks)
    return CompiledStatement(sa.select(*columns).select_from(queue.join(lane, sa.true())))
