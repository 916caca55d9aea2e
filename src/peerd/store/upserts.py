"""Inserting rows whose keys may be there already, in one statement that does not fail for the key.

An INSERT that fails and an UPDATE after it would raise a shared lock to an exclusive one, at which three competitors
deadlock on InnoDB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.types import MYSQL


def insert_if_absent(
    connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], key: tuple[str, ...]
) -> None:
    """Insert rows, except those whose key is there already; such a row is locked and stays as it is."""
    insert = _insert(table, connection.dialect.name).values([dict(row) for row in rows])
    unchanged = {key[0]: table.c[key[0]]}
    if connection.dialect.name in MYSQL:
        connection.execute(insert.on_duplicate_key_update(unchanged))
    else:
        connection.execute(insert.on_conflict_do_update(index_elements=key, set_=unchanged))


def insert_new(table: sa.Table, dialect: str) -> Any:
    """An insert that leaves out rows whose key is there already; the ``rowcount`` of its result counts the others."""
    insert = _insert(table, dialect)
    new = insert.prefix_with("IGNORE") if dialect in MYSQL else insert.on_conflict_do_nothing()
    return new.inline().execution_options(preserve_rowcount=True)


def _insert(table: sa.Table, dialect: str) -> Any:
    insert: Any
    match dialect:  # each process loads its own dialect only
        case "postgresql":
            from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415
        case "sqlite":
            from sqlalchemy.dialects.sqlite import insert  # noqa: PLC0415
        case _:
            from sqlalchemy.dialects.mysql import insert  # noqa: PLC0415
    return insert(table)
