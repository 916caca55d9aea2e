"""Reserving: take the next jobs for a queue client, with a deadline instead of touches.

The order is a claim's: priority, failures, due time, id. A client's job has neither failures nor a start time
while it is ready, so jobs of one priority come in the order in which they were put, and a released one comes before
younger ones.

- PostgreSQL: one statement, as a claim.
- SQLite: the jobs are read and written by their ids; within the transaction there is no other writer. One statement for
  both took as long, and its rows are handed over one by one.
- MariaDB, MySQL: candidates are read, and those that are not locked are locked and written.

Where a queue or its keys have limits, jobs are reserved one after another, by priority, from the limited queues and
beside them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.task import LARGEST_CLIENT_SECONDS
from peerd.store.outcomes import ClaimId
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.schema.types import MYSQL, now, seconds_from_now
from peerd.store.statements import (
    CompiledStatement,
    DriverConnection,
    id_in_list,
    list_parameter,
    new_token,
    queue_in_list,
)
from peerd.store.take import on_mysql, on_postgresql, on_sqlite
from peerd.store.take.backlog import find_reservable
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import LIMIT_PARAMETER, all_lanes, is_limited, is_on_duty, is_takeable, taken_columns
from peerd.store.take.turns import take_turn, take_turn_for
from peerd.store.tasks.conditions import select_by_id, update_by_id
from peerd.store.tasks.rows import batches, next_lease, raised, to_whole_number

JOB_COLUMNS: Final = (
    "id",
    "queue",
    "body",
    "body_bytes",
    "priority",
    "ttr",
    "lease",
    "unique_key",
    "attempts",
    "reserves",
    "timeouts",
    "releases",
    "limit_key",
    *(column.name for column in CLAIM_ORDER if column.name != "id"),
)
"""The columns that make a `ReservedJob`, the key by which limits count it, and those of the order."""
KEY_POSITION: Final = JOB_COLUMNS.index("limit_key")
TTR_PARAMETER: Final = sa.bindparam("default_ttr", type_=sa.BigInteger())
SEEN_AMONG_COMPETITORS: Final = 128
"""Candidates that are read beyond the number wanted on MySQL, once some were locked."""
FEW_CANDIDATES: Final = 16
"""Candidates that are tried at once then."""
BESIDE_LIMITS: Final = ""
"""Stands for all queues without limits beside those with some."""

Row = Sequence[Any]
"""The columns of a job as they are after the reservation."""


class ReservedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was reserved.

    Attributes:
        ttr: seconds until its deadline, at the reservation and after each touch.
        lease: names this reservation in every later write.
        has_attempts: workers have tried it without success, so that it may have rows in ``attempts``.
        timeouts, releases: how often a reservation of it has ended so.
    """

    id: int
    queue: str
    body: bytes
    priority: int
    ttr: int
    lease: int
    unique_key: str | None
    has_attempts: bool
    timeouts: int
    releases: int

    @property
    def claim(self) -> ClaimId:
        """The identity of the reservation."""
        return ClaimId(self.id, self.lease)


class ReservationTerms(msgspec.Struct, frozen=True):
    """What a reservation reads and writes; max_attempts stays as the worker that tries the job has written it."""

    columns: ClassVar = JOB_COLUMNS

    def values(self, moment: sa.ColumnElement[Any]) -> dict[str, Any]:
        ttr = bounded_ttr(sa.func.coalesce(tasks.c.ttr, TTR_PARAMETER))
        return {
            **taken_columns(moment),
            "ttr": ttr,
            "deadline_at": seconds_from_now(ttr),
            "reserves": raised(tasks.c.reserves),
            "buried_order": None,
        }


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
    rows = _reserve_unlimited(direct, claimer, limit, default_ttr, beside_limits=False)
    if not rows:
        ranks = find_reservable(direct, claimer)
        if ranks.limited:
            rows = _reserve_by_rank(connection, claimer, dict(ranks.limited), ranks.plain, limit, default_ttr)
        elif ranks.plain is not None:  # MySQL asks for keyed jobs of all lanes, also of those of other nodes
            rows = _reserve_unlimited(direct, claimer, limit, default_ttr, beside_limits=True)
    return [_to_job(row, default_ttr) for row in rows]


def reserve_by_id(connection: Connection, claimer: Claimer, job_id: int, default_ttr: int) -> ReservedJob | None:
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
    found = _limits_of_job().run(direct, id=job_id).all()
    if not found:
        return None
    queue, limit_key, has_limit = found[0]

    def write(ids: Sequence[int]) -> list[tuple[Row, str]]:
        rows = _lock_and_write(direct, claimer, ids, default_ttr, event=TaskEvent.TAKE, with_key=True)
        return [(row, limit_key or "") for row in rows]

    if limit_key is None and not has_limit:
        written = [row for row, _ in write([job_id])]
    else:
        written = take_turn_for(connection, queue, limit_key or "", job_id, write)
    return next((_to_job(row, default_ttr) for row in written), None)


@lru_cache(maxsize=1)
def _limits_of_job() -> CompiledStatement:
    """The queue and the key of a job, and whether the queue is limited."""
    columns = (tasks.c.queue, tasks.c.limit_key, is_limited(tasks.c.queue))
    found = sa.select(*columns).where(tasks.c.id == sa.bindparam("id", type_=sa.BigInteger()))
    return CompiledStatement(select_by_id(found))


# ---------------------------------------------------------------- beside limits


def _reserve_unlimited(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[Row]:
    """Reserve jobs that count for no limit; without ``beside_limits``, none if there is one that does."""
    if connection.dialect.name in MYSQL:
        rows = _reserve_on_mysql(connection, claimer, limit, default_ttr, beside_limits=beside_limits)
    elif connection.dialect.name == "sqlite":
        rows = _reserve_on_sqlite(connection, claimer, limit, default_ttr, beside_limits=beside_limits)
    else:
        terms, lanes, about = ReservationTerms(), all_lanes(claimer.node_id), {"default_ttr": default_ttr}
        rows, _ = on_postgresql.take(
            connection, claimer, terms, lanes, limit, beside_limits=beside_limits, token=new_token(), **about
        )
    return sorted(rows, key=_order_of)


def _reserve_on_sqlite(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[Row]:
    first = _first_on_sqlite(all_lanes(claimer.node_id), beside_limits=beside_limits)
    rows = first.run(connection, **on_sqlite.parameters(connection.dialect, claimer, limit))
    _write_reservations(connection, claimer, [row[0] for row in rows], default_ttr)
    return list(rows)


@lru_cache(maxsize=32)
def _first_on_sqlite(lanes: tuple[int, ...], *, beside_limits: bool) -> on_sqlite.RowsInJson:
    columns = _columns_afterwards(on_sqlite.TASK)
    return on_sqlite.RowsInJson(on_sqlite.first_tasks(lanes, *columns, beside_limits=beside_limits), JOB_COLUMNS)


def _reserve_on_mysql(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[Row]:
    """If others have locked some of the first jobs, those that follow are tried, a few at a time."""
    lanes = all_lanes(claimer.node_id)
    candidates = on_mysql.candidates(connection, claimer, lanes, limit, beside_limits=beside_limits)
    rows = _lock_and_write(connection, claimer, candidates, default_ttr)
    if len(rows) == len(candidates):
        return rows
    seen = limit + SEEN_AMONG_COMPETITORS
    for some in batches(
        on_mysql.candidates(connection, claimer, lanes, seen, beside_limits=beside_limits),
        rows=max(limit, FEW_CANDIDATES),
    ):
        rows += _lock_and_write(connection, claimer, some, default_ttr, limit=limit - len(rows))
        if len(rows) == limit:
            break
    return rows


# ---------------------------------------------------------------- with limits


def _reserve_by_rank(
    connection: Connection, claimer: Claimer, limited: dict[str, int], plain: int | None, limit: int, default_ttr: int
) -> list[Row]:
    """Reserve one job after another, from the limited queues and beside them, by priority.

    A rank of a limited queue is its first job's, which its limits may not let start; so a reservation from it is
    bounded by the next rank of all others. Of two first jobs of the same priority, either may come first.
    """
    direct = DriverConnection(connection)
    ranks: dict[str, int | None] = {**limited, BESIDE_LIMITS: plain}
    rows: list[Row] = []
    while len(rows) < limit:
        (rank, _, queue), others = _first_and_others(ranks)
        if rank is None:
            break
        if queue == BESIDE_LIMITS:
            won = _reserve_unlimited(direct, claimer, 1, default_ttr, beside_limits=True)
            ranks[queue] = find_reservable(direct, claimer).plain if won else None
        else:
            won = _reserve_limited(connection, claimer, queue, default_ttr, worst_rank=others)
            ranks[queue] = won[0][KEY_POSITION + 1] if won else None if others is None else others + 1
        rows += won
    return rows


def _first_and_others(ranks: Mapping[str, int | None]) -> tuple[tuple[int | None, float, str], int | None]:
    """The best rank with its queue, one of them at random where several have it; and the best rank of the others."""
    known = sorted((rank, random.random(), queue) for queue, rank in ranks.items() if rank is not None)
    if not known:
        return (None, 0.0, ""), None
    return known[0], known[1][0] if len(known) > 1 else None


def _reserve_limited(
    connection: Connection, claimer: Claimer, queue: str, default_ttr: int, *, worst_rank: int | None
) -> list[Row]:
    """Reserve the next job of a limited queue, if its limits have capacity, and if its rank is not beyond a bound."""
    direct, of_this_queue = DriverConnection(connection), msgspec.structs.replace(claimer, queues=(queue,))

    def write(ids: Sequence[int]) -> list[tuple[Row, str]]:
        rows = _lock_and_write(direct, of_this_queue, ids, default_ttr, with_key=True)
        return [(row, row[KEY_POSITION] or "") for row in rows]

    rows, _ = take_turn(connection, claimer, queue, all_lanes(claimer.node_id), 1, write, worst_rank=worst_rank)
    return rows


# ---------------------------------------------------------------- rows


def _lock_and_write(
    connection: DriverConnection,
    claimer: Claimer,
    ids: Sequence[int],
    default_ttr: int,
    *,
    limit: int | None = None,
    event: TaskEvent = TaskEvent.CLAIM,
    with_key: bool = False,
) -> list[Row]:
    """Reserve those of these jobs, ``limit`` at the most, that may be reserved and are not locked.

    A job that was named by its id (``event``) may be in any queue. ``with_key``: the jobs may have limit keys.
    """
    if not ids:
        return []
    listed = {"ids": list_parameter(connection.dialect, sorted(ids))}
    if event is TaskEvent.CLAIM:
        listed["queues"] = list_parameter(connection.dialect, claimer.queues)
    lockable = _lockable(all_lanes(claimer.node_id), event, with_key=with_key)
    rows = lockable.run(connection, **claimer.parameters(), **listed, limit=limit or len(ids)).all()
    _write_reservations(connection, claimer, sorted(row[0] for row in rows), default_ttr)
    return sorted(rows, key=_order_of)


def _write_reservations(connection: DriverConnection, claimer: Claimer, ids: Sequence[int], default_ttr: int) -> None:
    """Write reservations of rows that are locked."""
    if ids:
        listed = list_parameter(connection.dialect, ids)
        values = {**claimer.parameters(), "token": new_token(), "default_ttr": default_ttr, "ids": listed}
        _reservation_update().run(connection, **values)


@lru_cache(maxsize=32)
def _lockable(lanes: tuple[int, ...], event: TaskEvent, *, with_key: bool) -> CompiledStatement:
    is_watched = () if event is TaskEvent.TAKE else (queue_in_list(tasks.c.queue),)
    takeable = is_takeable(lanes, *is_watched, event=event, with_key=with_key)
    found = sa.select(*_columns_afterwards(tasks)).where(id_in_list(tasks.c.id), takeable, is_on_duty())
    first = select_by_id(found).order_by(tasks.c.id).limit(LIMIT_PARAMETER)
    return CompiledStatement(first.with_for_update(skip_locked=True, of=tasks))


def _columns_afterwards(table: Any) -> list[Any]:
    """`JOB_COLUMNS`, of rows that are read before they are written."""
    written = {"lease": next_lease(table.c.lease), "reserves": raised(table.c.reserves)}
    return [written[name].label(name) if name in written else table.c[name] for name in JOB_COLUMNS]


@lru_cache(maxsize=1)
def _reservation_update() -> CompiledStatement:
    update = sa.update(tasks).where(id_in_list(tasks.c.id)).values(ReservationTerms().values(now()))
    return CompiledStatement(update_by_id(update))


def bounded_ttr(ttr: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A ttr as a client could have given it, also where SQL by hand wrote another: no deadline is out of range."""
    least: sa.ColumnElement[int] = sa.literal_column("1")
    most: sa.ColumnElement[int] = sa.literal_column(str(LARGEST_CLIENT_SECONDS))
    return sa.case((ttr > most, most), (ttr < least, least), else_=ttr)


def _order_of(row: Row) -> tuple[Any, ...]:
    return (*row[KEY_POSITION + 1 :], row[0])


def _to_job(row: Row, default_ttr: int) -> ReservedJob:
    task_id, queue, body, body_bytes, priority, ttr, lease, unique_key, attempts, *counts = row[:KEY_POSITION]
    reserves, timeouts, releases = map(to_whole_number, counts)
    return ReservedJob(
        id=task_id,
        queue=queue,
        body=to_bytes(body, body_bytes),
        priority=to_whole_number(priority),
        ttr=default_ttr if ttr is None else min(max(to_whole_number(ttr), 1), LARGEST_CLIENT_SECONDS),
        lease=lease,
        unique_key=unique_key,
        has_attempts=to_whole_number(attempts) > 0 or lease != reserves,
        timeouts=timeouts,
        releases=releases,
    )


def to_bytes(body: str | bytes | None, body_bytes: bytes | None) -> bytes:
    """The body of a job.

    >>> to_bytes("a", None), to_bytes(None, b"b"), to_bytes(None, None)
    (b'a', b'b', b'')
    """
    if body is None:
        return bytes(body_bytes or b"")
    return body.encode() if isinstance(body, str) else body
