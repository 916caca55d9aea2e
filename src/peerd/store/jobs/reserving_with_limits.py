"""Reserving from queues and keys with limits, one job after another."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.claim.claimer import Claimer, claimer_parameters
from peerd.store.jobs.candidates import (
    head_of_lane,
    limited_rank,
    open_tubes,
)
from peerd.store.jobs.candidates_on_mysql import LAST_RANK, candidates_of_heads, read_tubes
from peerd.store.jobs.reserved_rows import (
    KEY_POSITION,
    Row,
    lock_and_write,
    to_job,
)
from peerd.store.jobs.reserving_unlimited import reserve_unlimited
from peerd.store.jobs.tube_list import TubeList, lane_table
from peerd.store.jobs.types import ReservedJob
from peerd.store.limits.limited_claim import take_turn
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.statements.driver_connection import DriverConnection

BESIDE_LIMITS: Final = ""
"""Stands for all queues without limits beside those with some."""


def reserve_with_limits(
    connection: Connection, claimer: Claimer, limited: Sequence[str], limit: int, default_ttr: int
) -> list[ReservedJob]:
    """Reserve one job after another, from the limited queues and beside them, by priority.

    A rank of a limited queue is that of its first job, which its limits may not let start; so a reservation from it is
    bounded by the next rank of all others. Of two first jobs of the same priority, either may come first.
    """
    direct = DriverConnection(connection)
    ranks = {queue: limited_rank(direct, claimer, queue) for queue in limited}
    ranks[BESIDE_LIMITS] = _plain_rank(direct, claimer)
    jobs: list[ReservedJob] = []
    while len(jobs) < limit:
        (rank, _, queue), others = _first_and_others(ranks)
        if rank is None:
            break
        if queue == BESIDE_LIMITS:
            won = reserve_unlimited(direct, claimer, 1, default_ttr, beside_limits=True)
            ranks[queue] = _plain_rank(direct, claimer) if won else None
        else:
            won = _reserve_limited(connection, claimer, queue, default_ttr, worst_rank=others)
            ranks[queue] = -won[0].priority if won else None if others is None else others + 1
        jobs += won
    return jobs


def _first_and_others(ranks: Mapping[str, int | None]) -> tuple[tuple[int | None, float, str], int | None]:
    """The best rank with its queue, one of them at random where several have it; and the best rank of the others."""
    known = sorted((rank, random.random(), queue) for queue, rank in ranks.items() if rank is not None)
    if not known:
        return (None, 0.0, ""), None
    return known[0], known[1][0] if len(known) > 1 else None


def _plain_rank(connection: DriverConnection, claimer: Claimer) -> int | None:
    """The rank of the first job without limits."""
    if connection.dialect.name in MYSQL:
        heads = read_tubes(connection, claimer).heads
        first = candidates_of_heads(connection, heads, 1, LAST_RANK) if heads else []
        return int(first[0][0]) if first else None
    listed = TubeList(connection.dialect, claimer.queues)
    statement = _first_rank(connection.dialect.name)
    rows = statement.run(connection, **claimer_parameters(claimer), **listed.parameters()).all()
    return min((int(row[0]) for row in rows if row[0] is not None), default=None)


@lru_cache(maxsize=2)
def _first_rank(kind: str) -> CompiledStatement:
    tube, lanes = open_tubes(kind, 1, beside_limits=True), lane_table()
    first = head_of_lane(tube.c.queue, lanes.c.lane, tasks.c.claim_rank, limit=sa.literal_column("1"))
    rank = first.correlate(tube, lanes).scalar_subquery()
    return CompiledStatement(sa.select(rank).select_from(tube.join(lanes, sa.true())))


def _reserve_limited(
    connection: Connection, claimer: Claimer, queue: str, default_ttr: int, *, worst_rank: int | None
) -> list[ReservedJob]:
    """Reserve the next job of a limited queue, if its limits have capacity, and if its rank is not beyond a bound."""
    direct = DriverConnection(connection)
    lanes = (0, claimer.node_id, -1, -1 - claimer.node_id)

    def write(ids: Sequence[int]) -> list[tuple[Row, str]]:
        return [(row, row[KEY_POSITION] or "") for row in lock_and_write(direct, claimer, ids, default_ttr)]

    rows, _ = take_turn(connection, claimer, queue, lanes, 1, write, worst_rank=worst_rank)
    return [to_job(row, default_ttr) for row in rows]
