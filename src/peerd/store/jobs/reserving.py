"""Reserving: a claim for a queue client, with a deadline instead of touches.

The order is that of a claim: priority, failures, due time, id. A client's job has neither failures nor a start time
while it is ready, so jobs of one priority come in the order in which they were put, and a released one comes before
younger ones.

`reserving_unlimited` reserves from queues without limits, `reserving_with_limits` from the others, and `reserved_rows`
has what both read and write.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.claim.claimer import Claimer
from peerd.store.jobs.candidates import (
    is_limited,
    limited_tubes,
)
from peerd.store.jobs.reserved_rows import (
    Row,
    lock_and_write,
    to_job,
)
from peerd.store.jobs.reserving_unlimited import reserve_unlimited
from peerd.store.jobs.reserving_with_limits import reserve_with_limits
from peerd.store.jobs.types import ReservedJob
from peerd.store.limits.limited_claim import take_in_turn
from peerd.store.schema.tables import tasks
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.statements.driver_connection import DriverConnection
from peerd.store.tasks.conditions import select_by_id


def reserve(connection: Connection, claimer: Claimer, limit: int, default_ttr: int) -> list[ReservedJob]:
    """Reserve the next jobs of the claimer's queues, best first; fewer than ``limit`` only where there are no more.

    Pauses, draining nodes, pinned tasks, start and finish times and limits hold as for workers.

    Args:
        connection: in a transaction.
        claimer: the process that holds the reservations, and the tubes that its client watches, any number.
        limit: jobs at the most.
        default_ttr: seconds, for jobs that have no ttr.
    """
    if limit < 1 or not claimer.queues:
        return []
    direct = DriverConnection(connection)
    found = reserve_unlimited(direct, claimer, limit, default_ttr, beside_limits=False)
    if not found and (limited := limited_tubes(direct, claimer)):
        return reserve_with_limits(connection, claimer, limited, limit, default_ttr)
    return found


def take(connection: Connection, claimer: Claimer, job_id: int, default_ttr: int) -> ReservedJob | None:
    """Reserve a job by its id, whether it is ready, delayed or buried; its tube need not be watched, and may be paused.

    Args:
        connection: in a transaction.
        claimer: the process; its queues are not used.
        job_id: any number.
        default_ttr: see `reserve`.

    Returns:
        None if there is no such job, if it is held, if only another node may have it, or if its limits do not let it
        start.
    """
    if not 0 < job_id < 2**63:
        return None
    direct = DriverConnection(connection)
    row = _find_limits().run(direct, id=job_id).all()
    if not row:
        return None
    queue, limit_key, is_limited = row[0]

    def write(ids: Sequence[int]) -> list[tuple[Row, str]]:
        rows = lock_and_write(direct, claimer, ids, default_ttr, is_taken=True)
        return [(row, limit_key or "") for row in rows]

    if limit_key is None and not is_limited:
        written = [row for row, _ in write([job_id])]
    else:
        written = take_in_turn(connection, queue, limit_key or "", job_id, write)
    return next((to_job(row, default_ttr) for row in written), None)


@lru_cache(maxsize=1)
def _find_limits() -> CompiledStatement:
    """The queue and the key of a job, and whether the queue is limited."""
    columns = (tasks.c.queue, tasks.c.limit_key, is_limited(tasks.c.queue))
    found = sa.select(*columns).where(tasks.c.id == sa.bindparam("id", type_=sa.BigInteger()))
    return CompiledStatement(select_by_id(found))
