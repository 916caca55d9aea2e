"""An insert that leaves out rows whose key is there already."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peerd.store.schema.types import MYSQL


def insert_new(table: sa.Table, dialect: str) -> Any:
    """The insert for a database; the ``rowcount`` of its result is the number of rows that were not there."""
    return _insert(table, dialect).inline().execution_options(preserve_rowcount=True)


def _insert(table: sa.Table, dialect: str) -> Any:
    if dialect in MYSQL:
        return sa.insert(table).prefix_with("IGNORE")
    insert: Any
    if dialect == "postgresql":  # each process loads its own dialect only
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415
    else:
        from sqlalchemy.dialects.sqlite import insert  # noqa: PLC0415
    return insert(table).on_conflict_do_nothing()
