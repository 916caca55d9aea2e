"""Reserving from queues without limits, in the way of each database.

- PostgreSQL: one statement. The first jobs of each lane are read without locks; the best of them that are not locked
  are locked and written.
- SQLite: the jobs are read, all as one JSON text, and written by their ids; within the transaction there is no other
  writer. One statement for both took as long, and its rows are handed over one by one.
- MariaDB, MySQL: the lanes with the best jobs are found, and their first jobs that are not locked are locked and read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from peerd.store.claim.claimer import Claimer, claimer_parameters
from peerd.store.jobs.candidates import (
    LIMIT_PARAMETER,
    head_of_lane,
    open_tubes,
)
from peerd.store.jobs.candidates_on_mysql import LAST_RANK, Head, best_heads, candidates_of_heads, read_tubes
from peerd.store.jobs.reserved_rows import (
    JOB_COLUMNS,
    ORDER_COLUMNS,
    Row,
    is_reservable,
    lock_and_write,
    order_of,
    reservation_values,
    to_job,
    write_reservations,
)
from peerd.store.jobs.tube_list import TubeList, lane_table
from peerd.store.jobs.types import ReservedJob
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.statements.driver_connection import DriverConnection
from peerd.store.statements.token import new_token
from peerd.store.tasks.rows import batches

SEEN_BEYOND_LIMIT: Final = 16
"""Candidates that are read beyond the number wanted: other processes may have locked the first ones."""
SEEN_AMONG_COMPETITORS: Final = 128
"""The same, once some were locked."""
FEW_CANDIDATES: Final = 16
"""Candidates that are tried at once on MySQL then."""
BODY_POSITION: Final = JOB_COLUMNS.index("body")
JOB: Final = tasks.alias("job")


def reserve_unlimited(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[ReservedJob]:
    """Reserve jobs of queues without limits; without ``beside_limits``, none if there is work for a limited claim."""
    if connection.dialect.name in MYSQL:
        return _reserve_on_mysql(connection, claimer, limit, default_ttr, beside_limits=beside_limits)
    write = _reserve_on_postgresql if connection.dialect.name == "postgresql" else _reserve_on_sqlite
    return write(connection, claimer, limit, default_ttr, beside_limits=beside_limits)


def _reserve_on_sqlite(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[ReservedJob]:
    listed = TubeList(connection.dialect, claimer.queues)
    values = {**claimer_parameters(claimer), **listed.parameters(), "limit": limit}
    rows: Sequence[Row] | None = None
    if limit > 1:
        rows = _decode_rows(_found_in_json(beside_limits=beside_limits).run(connection, **values).scalar_one())
    if rows is None:
        rows = _found_on_sqlite(beside_limits=beside_limits).run(connection, **values).all()
    if rows:
        write_reservations(connection, claimer, [row[0] for row in rows], default_ttr)
    return [to_job(row, default_ttr) for row in rows]


def _decode_rows(text: str) -> Sequence[Row] | None:
    """None if it is not JSON, because a number that SQL by hand has written is infinite."""
    try:
        rows = msgspec.json.decode(text, type=list[list[Any]])
    except msgspec.DecodeError:
        return None
    for row in rows:
        row[BODY_POSITION] = bytes.fromhex(row[BODY_POSITION])
    return rows


@lru_cache(maxsize=2)
def _found_on_sqlite(*, beside_limits: bool) -> CompiledStatement:
    return CompiledStatement(_first_on_sqlite(_body_as_blob(), beside_limits=beside_limits))


@lru_cache(maxsize=2)
def _found_in_json(*, beside_limits: bool) -> CompiledStatement:
    """All rows in one value; bodies, which may be any bytes, in hexadecimal digits."""
    first = _first_on_sqlite(sa.func.hex(_body_as_blob()), beside_limits=beside_limits).subquery("first")
    return CompiledStatement(sa.select(sa.func.json_group_array(sa.func.json_array(*first.c))))


def _first_on_sqlite(body: sa.ColumnElement[Any], *, beside_limits: bool) -> sa.Select[Any]:
    """The columns of the first jobs, best first; ``body`` is in place of the two columns that may have the body."""
    tube, lanes = open_tubes("sqlite", 1, beside_limits=beside_limits), lane_table()
    ids = head_of_lane(tube.c.queue, lanes.c.lane, tasks.c.id).correlate(tube, lanes)
    bodies = {"body": body.label("body"), "body_bytes": sa.null().label("body_bytes")}
    columns = [bodies.get(name, JOB.c[name]) for name in JOB_COLUMNS]
    joined = tube.join(lanes, sa.true()).join(JOB, JOB.c.id.in_(ids))
    order = [JOB.c[column.name] for column in CLAIM_ORDER]
    return sa.select(*columns).select_from(joined).order_by(*order).limit(LIMIT_PARAMETER)


def _body_as_blob() -> sa.ColumnElement[Any]:
    empty: sa.ColumnElement[Any] = sa.literal_column("x''")
    return sa.func.coalesce(sa.cast(JOB.c.body, sa.BLOB()), JOB.c.body_bytes, empty, type_=sa.types.NullType())


def _reserve_on_postgresql(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[ReservedJob]:
    """If others have locked some of the first jobs, more are read."""
    statement = _reservation_on_postgresql(beside_limits=beside_limits)
    listed = TubeList(connection.dialect, claimer.queues).parameters()
    common = {**claimer_parameters(claimer), **listed, "default_ttr": default_ttr}
    rows: list[Row] = []
    for beyond in (SEEN_BEYOND_LIMIT, SEEN_AMONG_COMPETITORS):
        missing = limit - len(rows)
        found = statement.run(connection, **common, limit=missing, seen=missing + beyond, token=new_token()).all()
        written = [row for row in found if row[0] is not None]
        rows += written
        if len(rows) == limit or found[0][-1] == len(written):
            break
    return [to_job(row, default_ttr) for row in sorted(rows, key=order_of)]


@lru_cache(maxsize=2)
def _reservation_on_postgresql(*, beside_limits: bool) -> CompiledStatement:
    """Its rows are as they were before, as those that the other databases read, each with the number of candidates.

    If nothing was written, there is one row with this number.
    """
    seen = sa.bindparam("seen", type_=sa.Integer())
    tube, lanes = open_tubes("postgresql", 1, beside_limits=beside_limits), lane_table()
    head = head_of_lane(tube.c.queue, lanes.c.lane, *CLAIM_ORDER, limit=seen).correlate(tube, lanes).lateral("head")
    order = [head.c[column.name] for column in CLAIM_ORDER]
    joined = tube.join(lanes, sa.true()).join(head, sa.true())
    candidates = sa.select(head.c.id).select_from(joined).order_by(*order).limit(seen).cte("candidates")
    before = [tasks.c[name] for name in (*JOB_COLUMNS, *ORDER_COLUMNS)]
    chosen = (
        sa.select(*before)
        .where(tasks.c.id.in_(sa.select(candidates.c.id)), is_reservable())
        .order_by(*CLAIM_ORDER)
        .limit(LIMIT_PARAMETER)
        .with_for_update(skip_locked=True, of=tasks)
        .cte("chosen")
    )
    moment = sa.select(now().label("at")).cte("moment").c.at
    update = sa.update(tasks).where(tasks.c.id == chosen.c.id)
    update = update.values(reservation_values(sa.select(moment).scalar_subquery()))
    written = update.returning(*chosen.c).cte("written")
    number = sa.select(sa.func.count().label("number")).select_from(candidates).subquery("counted")
    result = sa.select(*written.c, number.c.number).select_from(number.outerjoin(written, sa.true()))
    return CompiledStatement(result)


def _reserve_on_mysql(
    connection: DriverConnection, claimer: Claimer, limit: int, default_ttr: int, *, beside_limits: bool
) -> list[ReservedJob]:
    reading = read_tubes(connection, claimer)
    if not reading.heads or (reading.has_limited and not beside_limits):
        return []
    heads = best_heads(reading.heads, limit)
    reserve_from = _reserve_from_head if len(heads) == 1 else _reserve_from_heads
    others = reading.heads[len(heads) :]
    rows = reserve_from(connection, claimer, heads, limit, default_ttr, others[0].rank - 1 if others else LAST_RANK)
    if len(rows) < limit and others:  # the first jobs of the best were late, or locked
        rows += _reserve_from_heads(connection, claimer, reading.heads, limit - len(rows), default_ttr, LAST_RANK)
    return [to_job(row, default_ttr) for row in sorted(rows, key=order_of)]


def _reserve_from_head(
    connection: DriverConnection, claimer: Claimer, heads: Sequence[Head], limit: int, default_ttr: int, worst_rank: int
) -> list[Row]:
    """Of one lane, the first jobs that are not locked are locked and read at once; worse ranks are left."""
    [head] = heads
    rows = list(_lock_head().run(connection, queue=head.queue, lane=head.lane, limit=limit, worst=worst_rank).all())
    if rows:
        write_reservations(connection, claimer, sorted(row[0] for row in rows), default_ttr)
    return rows


def _reserve_from_heads(
    connection: DriverConnection, claimer: Claimer, heads: Sequence[Head], limit: int, default_ttr: int, worst_rank: int
) -> list[Row]:
    """If others have locked some of the first jobs, those that follow are tried, a few at a time."""
    candidates = candidates_of_heads(connection, heads, limit, worst_rank)
    rows = lock_and_write(connection, claimer, [order[-1] for order in candidates], default_ttr)
    if len(rows) == len(candidates):
        return rows
    further = candidates_of_heads(connection, heads, limit + SEEN_AMONG_COMPETITORS, worst_rank)
    for some in batches(further, rows=max(limit, FEW_CANDIDATES)):
        ids = [order[-1] for order in some]
        rows += lock_and_write(connection, claimer, ids, default_ttr, limit=limit - len(rows))
        if len(rows) == limit:
            break
    return rows


@lru_cache(maxsize=1)
def _lock_head() -> CompiledStatement:
    queue, lane = sa.bindparam("queue", type_=sa.String()), sa.bindparam("lane", type_=sa.Integer())
    columns = [tasks.c[name] for name in (*JOB_COLUMNS, *ORDER_COLUMNS)]
    head = head_of_lane(queue, lane, *columns).where(tasks.c.claim_rank <= sa.bindparam("worst", type_=sa.BigInteger()))
    return CompiledStatement(head.with_for_update(skip_locked=True, of=tasks))
