"""Rows of tasks: as values, locked and written by primary key under conditions, and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.lifecycle import Status, TaskEvent, target
from peerd.domain.outcome import ERROR_LIMIT, truncate
from peerd.domain.task import Task
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import now
from peerd.store.tasks.conditions import select_by_id, update_by_id

T = TypeVar("T")

BATCH: Final = 500
"""Rows that one statement writes at the most."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of texts in one statement of many rows; MariaDB's default max_allowed_packet is 16 MiB."""

TASK_FIELDS: Final = Task.__struct_fields__
TASK_COLUMNS: Final = tuple(tasks.c[field] for field in TASK_FIELDS)
LARGE_COLUMNS: Final = ("body", "body_bytes", "result")
SMALL_COLUMNS: Final = tuple(
    sa.null().label(column.name) if column.name in LARGE_COLUMNS else column for column in TASK_COLUMNS
)
"""The columns of a task, without reading what may be large."""
STATUS_OF_TEXT: Final = {str(status): status for status in Status}
NUMBER_COLUMNS: Final = (
    *("priority", "attempts", "max_attempts", "failures", "crashes", "timeout", "progress"),
    *("ttr", "delay", "reserves", "timeouts", "releases", "buries", "kicks", "bulk_id"),
)
LARGEST_INTEGER: Final = 2**31 - 1
"""The largest value of a column of the type INTEGER on MySQL and PostgreSQL."""
LAST_LEASE: Final = 2**63 - 1


def status_literal(status: Status) -> sa.ColumnElement[Any]:
    """A status as a value to write."""
    return sa.literal_column(f"'{status}'")


def to_task(row: RowMapping) -> Task:
    """A row that was read with `TASK_COLUMNS`."""
    values = dict(row)
    values["status"] = STATUS_OF_TEXT[values["status"]]
    for column in NUMBER_COLUMNS:
        values[column] = to_number(values[column])
    return Task(**values)


def to_number(value: Any) -> Any:
    """A number as SQL counts it: SQLite stores any text that was written into a column of numbers, and counts it as 0.

    >>> to_number("many"), to_number(float("nan")), to_number(None), to_number(3)
    (0, 0, None, 3)
    """
    return 0 if isinstance(value, (str, bytes)) or value != value else value  # noqa: PLR0124 - NaN is unlike itself


def to_whole_number(value: Any) -> int:
    """A whole number as Python counts it, from anything that SQL by hand has written into its column; null is 0.

    >>> to_whole_number(3), to_whole_number(2.5), to_whole_number(None), to_whole_number(float("inf")) == 2**63 - 1
    (3, 2, 0, True)
    """
    if type(value) is int:
        return value
    return int(min(max(to_number(value) or 0, 1 - 2**63), 2**63 - 1))


def incremented(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """A count, increased by one; it stays at the column's largest value, beyond which no write would succeed."""
    largest: sa.ColumnElement[int] = sa.literal_column(str(LARGEST_INTEGER))
    one: sa.ColumnElement[int] = sa.literal_column("1")
    return sa.case((column == largest, column), else_=column + one)


def raised(counter: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A counter of queue clients, which is null instead of 0, increased by one."""
    return incremented(sa.func.coalesce(counter, sa.literal_column("0")))


def next_lease(lease: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """The next lease of a task; 1 after the largest number, which only SQL by hand can have written."""
    return sa.case((lease == LAST_LEASE, 1), else_=lease + 1)


def next_lease_number(lease: int) -> int:
    """`next_lease`, of a number that was read.

    >>> next_lease_number(3), next_lease_number(LAST_LEASE)
    (4, 1)
    """
    return 1 if lease == LAST_LEASE else lease + 1


def finish_at_ahead() -> sa.ColumnElement[Any]:
    """The finish_at of a task that a person makes pending; none if it has passed: it would be deleted at once."""
    return sa.case((tasks.c.finish_at > now(), tasks.c.finish_at), else_=sa.null())


def start_at_when_pending() -> sa.ColumnElement[Any]:
    """The start_at of a task that becomes pending: none where it has a ttr, for queue clients get it in put order."""
    return sa.case((tasks.c.ttr.is_(None), tasks.c.start_at))


def values_of_release() -> dict[str, Any]:
    """What a row gets whose reservation ends, and that is ready: it is in its old place, by priority and age."""
    return {"status": status_literal(target(TaskEvent.RELEASE)), "start_at": sa.null(), "deadline_at": sa.null()}


def kicked_values() -> dict[str, Any]:
    """What a row gets that is kicked: it is pending, and its attempts stay as they are."""
    return {
        "status": status_literal(target(TaskEvent.KICK)),
        "start_at": None,
        "finish_at": finish_at_ahead(),
        "buried_order": None,
        "kicks": raised(tasks.c.kicks),
    }


def canceled_values(reason: str) -> dict[str, Any]:
    """What a row gets that is canceled; no holder can write it any more, and none has a deadline."""
    return {
        "status": status_literal(target(TaskEvent.CANCEL)),
        "lease": next_lease(tasks.c.lease),
        "error": truncate(reason, ERROR_LIMIT),
        "finished_at": now(),
        "deadline_at": None,
        "buried_order": None,
    }


def by_id_only(
    connection: Connection, ids: Iterable[int], conditions: Sequence[sa.ColumnElement[bool]]
) -> list[sa.ColumnElement[bool]]:
    """A row has one of these ids and meets the conditions; only the ids are looked up in an index.

    PostgreSQL has no hints: for a condition such as ``status = 'working'`` it may walk the small index of working
    tasks, which is full of dead entries where much is claimed and completed. The planner cannot use a CASE.
    """
    among: list[sa.ColumnElement[bool]] = [tasks.c.id.in_(sorted(ids))]
    if connection.dialect.name != "postgresql" or not conditions:
        return [*among, *conditions]
    return [*among, sa.case((sa.and_(*conditions), sa.true()), else_=sa.false())]


def lock_tasks(
    connection: Connection,
    ids: Iterable[int],
    *conditions: sa.ColumnElement[bool],
    skip_locked: bool = False,
    bodies: bool = True,
) -> list[Task]:
    """Lock the rows among these, at most `BATCH`, that still meet the conditions, in the order of their ids; read them.

    The ids were read without locks, so the conditions are repeated. ``skip_locked`` leaves out rows that another
    session has locked. Without ``bodies``, bodies and results are None.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return []
    statement = (
        sa.select(*(TASK_COLUMNS if bodies else SMALL_COLUMNS))
        .where(*by_id_only(connection, wanted, conditions))
        .order_by(tasks.c.id)
        .with_for_update(skip_locked=skip_locked)
    )
    return [to_task(row) for row in connection.execute(select_by_id(statement)).mappings()]


def lock_available(connection: Connection, ids: Iterable[int], *conditions: sa.ColumnElement[bool]) -> list[int]:
    """Lock the rows among these that meet the conditions and are not locked by another session; their ids, sorted.

    A write of them waits for no lock. SQLite has no locks of rows: there all ids are returned.
    """
    wanted = sorted(set(ids))
    if not wanted or connection.dialect.name == "sqlite":
        return wanted
    statement = (
        sa.select(tasks.c.id)
        .where(*by_id_only(connection, wanted, conditions))
        .order_by(tasks.c.id)
        .with_for_update(skip_locked=True)
    )
    return list(connection.execute(select_by_id(statement)).scalars())


def update_available(
    connection: Connection, ids: Sequence[int], *conditions: sa.ColumnElement[bool], **values: Any
) -> int:
    """`update_tasks`, without the rows that another session has locked."""
    return update_tasks(connection, lock_available(connection, ids, *conditions), *conditions, **values)


def update_tasks(connection: Connection, ids: Sequence[int], *conditions: sa.ColumnElement[bool], **values: Any) -> int:
    """Write rows by primary key where the conditions hold; how many were written.

    ``updated_at`` is written too. The ids are sorted, so that two writers lock in the same order.
    """
    if not ids:
        return 0
    statement = (
        sa.update(tasks)
        .where(*by_id_only(connection, ids, conditions))
        .values(updated_at=now(), **values)
        .execution_options(synchronize_session=False)
    )
    return connection.execute(update_by_id(statement)).rowcount


def batches(
    values: Iterable[T],
    bytes_of: Callable[[T], int] = lambda _: 0,
    *,
    rows: int = BATCH,
    most_bytes: int = BATCH_BYTES,
) -> Iterator[list[T]]:
    """Cut a list into pieces that a server accepts in one statement.

    >>> [piece for piece in batches([3, 4, 9, 1], lambda value: value, rows=2, most_bytes=8)]
    [[3, 4], [9], [1]]
    """
    piece: list[T] = []
    filled = 0
    for value in values:
        size = bytes_of(value)
        if piece and (len(piece) == rows or filled + size > most_bytes):
            yield piece
            piece, filled = [], 0
        piece.append(value)
        filled += size
    if piece:
        yield piece
