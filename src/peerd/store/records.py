"""Rows of tables as values: read as structs, inserted, and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_origin

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.types import seconds_from_now
from peerd.store.statements import insert_new

Record = TypeVar("Record", bound=msgspec.Struct)


def columns_of(kind: type[msgspec.Struct], table: sa.Table, **others: Any) -> tuple[sa.ColumnElement[Any], ...]:
    """The columns that `to_record` reads: those of the table with the names of the fields, and others for some."""
    return tuple(others[name].label(name) if name in others else table.c[name] for name in kind.__struct_fields__)


def to_record(kind: type[Record], row: Mapping[Any, Any], **others: Any) -> Record:
    """A row as a struct, whose fields have the names of columns; fields that are given are not read.

    A database has 0 and 1 for a bool, a text for an enum and JSON for a dictionary, which is empty where it is null.
    """
    values = {name: others[name] if name in others else row[name] for name in kind.__struct_fields__}
    for name, convert in _conversions(kind):
        values[name] = convert(values[name])
    return kind(**values)


@cache
def _conversions(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any]]]:
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for field in msgspec.structs.fields(kind):
        if field.type is bool or (isinstance(field.type, type) and issubclass(field.type, Enum)):
            found.append((field.name, field.type))
        elif get_origin(field.type) is dict:
            found.append((field.name, _from_json))
    return found


def _from_json(value: Any) -> Any:
    return json.loads(value or "{}") if value is None or isinstance(value, str) else value


def to_json(values: Mapping[str, Any]) -> str | None:
    """The text of a dictionary in a column; null where it is empty."""
    return json.dumps(dict(values), ensure_ascii=False) if values else None


def read_all(
    connection: Connection, kind: type[Record], statement: sa.Select[Any], parameters: Mapping[str, Any] | None = None
) -> list[Record]:
    """The rows of a statement, see `to_record`."""
    return [to_record(kind, row) for row in connection.execute(statement, parameters).mappings()]


def read_first(
    connection: Connection, kind: type[Record], statement: sa.Select[Any], parameters: Mapping[str, Any] | None = None
) -> Record | None:
    """The first row of a statement, if there is one, see `to_record`."""
    row = connection.execute(statement, parameters).mappings().first()
    return None if row is None else to_record(kind, row)


def insert_row(connection: Connection, table: sa.Table, values: Mapping[str, Any]) -> int:
    """Insert a row; the number that the database has given it."""
    key = connection.execute(sa.insert(table).values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def add_new(connection: Connection, table: sa.Table, rows: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> int:
    """Insert rows, except those whose key is there already; how many were inserted."""
    return int(connection.execute(insert_new(table, connection.dialect.name).values(rows)).rowcount)


def delete_older(connection: Connection, table: sa.Table, column: sa.Column[Any], age: float, limit: int) -> int:
    """Delete rows whose time in a column is so many seconds ago, the oldest first; how many."""
    old = column <= seconds_from_now(-age)
    first = sa.select(table.c.id).where(old).order_by(column).limit(limit).with_for_update(skip_locked=True)
    ids = sorted(connection.execute(first).scalars())
    return connection.execute(sa.delete(table).where(table.c.id.in_(ids), old)).rowcount if ids else 0
