"""The rows of reservations: what is read of a job, when it may be reserved, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from peerd.domain.lifecycle import TaskEvent, sources
from peerd.domain.task import LARGEST_CLIENT_SECONDS
from peerd.store.claim.claimer import NODE_PARAMETER, Claimer, claim_columns
from peerd.store.jobs.candidates import (
    LIMIT_PARAMETER,
    is_on_duty,
)
from peerd.store.jobs.tube_list import lanes_of_node
from peerd.store.jobs.types import ReservedJob
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.statements.compiled import CompiledStatement, id_in_list, list_parameter
from peerd.store.statements.driver_connection import DriverConnection
from peerd.store.statements.token import new_token
from peerd.store.tasks.conditions import select_by_id, status_is, update_by_id
from peerd.store.tasks.rows import next_lease_number, raised, to_whole_number

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
)
"""The columns that make a `ReservedJob`, in this order, and the key by which limits count it."""
KEY_POSITION: Final = JOB_COLUMNS.index("limit_key")
ORDER_COLUMNS: Final = tuple(column.name for column in CLAIM_ORDER if column.name != "id")
TTR_PARAMETER: Final = sa.bindparam("default_ttr", type_=sa.BigInteger())

Row = Sequence[Any]


def lock_and_write(
    connection: DriverConnection,
    claimer: Claimer,
    ids: Sequence[int],
    default_ttr: int,
    *,
    limit: int | None = None,
    is_taken: bool = False,
) -> list[Row]:
    """Reserve those of these jobs that may be reserved and are not locked; the rows as they were before.

    ``limit``: so many at the most. ``is_taken``: they were named by their ids, and may be delayed or buried.
    """
    if not ids:
        return []
    among = list_parameter(connection.dialect, sorted(ids))
    parameters = {"node": claimer.node_id, "incarnation": claimer.incarnation, "ids": among, "limit": limit or len(ids)}
    rows = _lockable(is_taken=is_taken).run(connection, **parameters).all()
    if rows:
        write_reservations(connection, claimer, sorted(row[0] for row in rows), default_ttr)
    return sorted(rows, key=order_of)


def write_reservations(connection: DriverConnection, claimer: Claimer, ids: Sequence[int], default_ttr: int) -> None:
    """Write reservations of rows that are locked."""
    named = {"id": ids[0]} if len(ids) == 1 else {"ids": list_parameter(connection.dialect, ids)}
    _reservation_update(is_one=len(ids) == 1).run(
        connection,
        node=claimer.node_id,
        process=claimer.process_id,
        token=new_token(),
        default_ttr=default_ttr,
        **named,
    )


@lru_cache(maxsize=2)
def _lockable(*, is_taken: bool) -> CompiledStatement:
    event = TaskEvent.TAKE if is_taken else TaskEvent.CLAIM
    columns = [tasks.c[name] for name in (*JOB_COLUMNS, *ORDER_COLUMNS)]
    found = sa.select(*columns).where(id_in_list(tasks.c.id), is_reservable(event), is_on_duty())
    first = select_by_id(found).order_by(tasks.c.id).limit(LIMIT_PARAMETER)
    return CompiledStatement(first.with_for_update(skip_locked=True, of=tasks))


@lru_cache(maxsize=2)
def _reservation_update(*, is_one: bool) -> CompiledStatement:
    is_named = tasks.c.id == sa.bindparam("id", type_=sa.BigInteger()) if is_one else id_in_list(tasks.c.id)
    update = sa.update(tasks).where(is_named).values(reservation_values(now()))
    return CompiledStatement(update_by_id(update))


def is_reservable(event: TaskEvent = TaskEvent.CLAIM) -> sa.ColumnElement[bool]:
    """The conditions that concern the row; a CASE, so that PostgreSQL looks up nothing but the ids in an index."""
    is_mine = sa.or_(*(tasks.c.lane == lane for lane in lanes_of_node(NODE_PARAMETER)))
    ends_later = sa.or_(tasks.c.finish_at.is_(None), tasks.c.finish_at > now())
    conditions = [status_is(*sources(event)), is_mine, ends_later]
    if event is TaskEvent.CLAIM:
        conditions.append(tasks.c.due_at <= now())
    return sa.case((sa.and_(*conditions), sa.true()), else_=sa.false())


def reservation_values(moment: sa.ColumnElement[Any]) -> dict[str, Any]:
    """The values that a reservation writes; max_attempts stays that of the worker that tries it, if any does."""
    ttr = bounded_ttr(sa.func.coalesce(tasks.c.ttr, TTR_PARAMETER))
    return {
        **claim_columns(moment),
        "ttr": ttr,
        "deadline_at": seconds_from_now(ttr),
        "reserves": raised(tasks.c.reserves),
        "buried_order": None,
    }


def bounded_ttr(ttr: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A ttr as a client could have given it, whatever SQL by hand has written: no deadline is out of range."""
    least: sa.ColumnElement[int] = sa.literal_column("1")
    most: sa.ColumnElement[int] = sa.literal_column(str(LARGEST_CLIENT_SECONDS))
    return sa.case((ttr > most, most), (ttr < least, least), else_=ttr)


def order_of(row: Row) -> tuple[Any, ...]:
    return (*row[len(JOB_COLUMNS) : len(JOB_COLUMNS) + len(ORDER_COLUMNS)], row[0])


def to_job(row: Row, default_ttr: int) -> ReservedJob:
    """A job from its row as it was before the reservation."""
    task_id, queue, body, body_bytes, priority, ttr, lease, unique_key, attempts, *counts = row[:KEY_POSITION]
    reserves, timeouts, releases = map(to_whole_number, counts)
    return ReservedJob(
        id=task_id,
        queue=queue,
        body=to_bytes(body, body_bytes),
        priority=to_whole_number(priority),
        ttr=default_ttr if ttr is None else min(max(to_whole_number(ttr), 1), LARGEST_CLIENT_SECONDS),
        lease=next_lease_number(lease),
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
