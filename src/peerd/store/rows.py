"""Small pieces that the operations share: conditions, guarded locks, rows as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store.clock import now
from peerd.store.tables import tasks, words
from peerd.store.types import MYSQL

BATCH: Final = 500
"""Rows that one statement writes at the most."""

TASK_COLUMNS: Final = tuple(tasks.c[field] for field in Task.__struct_fields__)


def status_is(*statuses: Status) -> sa.ColumnElement[bool]:
    """The status is one of these.

    As literals: with a bound parameter PostgreSQL's generic plans and SQLite cannot use a partial index.
    """
    if len(statuses) == 1:
        return tasks.c.status == sa.literal_column(words(statuses))
    return tasks.c.status.in_([sa.literal_column(f"'{status}'") for status in statuses])


def becomes(status: Status) -> sa.ColumnElement[Any]:
    """A status as a value to write."""
    return sa.literal_column(f"'{status}'")


def to_task(row: RowMapping) -> Task:
    """A row that was read with `TASK_COLUMNS`."""
    values = dict(row)
    values["status"] = Status(values["status"])
    return Task(**values)


def select_by_id(statement: sa.Select[Any]) -> sa.Select[Any]:
    """Read by primary key: MySQL's optimiser may otherwise walk, and lock, an index with a changing column."""
    for dialect in MYSQL:
        statement = statement.with_hint(tasks, "FORCE INDEX (PRIMARY)", dialect)
    return statement


def update_by_id(statement: sa.Update) -> sa.Update:
    """Write by primary key, as `select_by_id` reads."""
    for dialect in MYSQL:
        statement = statement.with_hint("FORCE INDEX (PRIMARY)", dialect_name=dialect)
    return statement


def lock_tasks(
    connection: Connection, ids: Iterable[int], *conditions: sa.ColumnElement[bool], skip_locked: bool = False
) -> list[Task]:
    """Lock the rows among these that (still) meet the conditions, in the order of their ids, and read them.

    Args:
        connection: in a transaction that will write them.
        ids: a batch of at most `BATCH`.
        conditions: repeated here, because the ids were read without locks.
        skip_locked: leave out rows that somebody else is writing just now.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return []
    statement = (
        sa.select(*TASK_COLUMNS)
        .where(tasks.c.id.in_(wanted), *conditions)
        .order_by(tasks.c.id)
        .with_for_update(skip_locked=skip_locked)
    )
    return [to_task(row) for row in connection.execute(select_by_id(statement)).mappings()]


def lock_task(connection: Connection, task_id: int, *conditions: sa.ColumnElement[bool]) -> Task | None:
    """`lock_tasks` for one."""
    found = lock_tasks(connection, [task_id], *conditions)
    return found[0] if found else None


def update_tasks(connection: Connection, ids: Sequence[int], *conditions: sa.ColumnElement[bool], **values: Any) -> int:
    """Write rows by primary key where the conditions hold; how many were written.

    ``updated_at`` is written too. The ids are sorted, so that two writers lock in the same order.
    """
    if not ids:
        return 0
    statement = (
        sa.update(tasks)
        .where(tasks.c.id.in_(sorted(ids)), *conditions)
        .values(updated_at=now(), **values)
        .execution_options(synchronize_session=False)
    )
    return connection.execute(update_by_id(statement)).rowcount


def batches(ids: Sequence[int], size: int = BATCH) -> Iterable[Sequence[int]]:
    """Cut a list into pieces.

    >>> [list(piece) for piece in batches([1, 2, 3], 2)]
    [[1, 2], [3]]
    """
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
