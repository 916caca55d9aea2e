"""The insert of many log lines: one statement, in the fastest way of each database.

It runs beside the outcomes, in a thread of the worker process, whose processor time it takes. SQLAlchemy would process
each value of each line, PyMySQL's `executemany` would search the statement for its values; so the text is made once.

- PostgreSQL: one JSON text with all lines, as psycopg makes an array in Python.
- SQLite: the same statement again for each line; nothing is sent anywhere between them.
- MariaDB and MySQL: one INSERT of many rows, the text of one row repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.tables import task_logs
from peerd.store.schema.types import MYSQL
from peerd.store.statements import CompiledStatement
from peerd.store.upserts import insert_new


class LoggedLine(msgspec.Struct, frozen=True):
    """A line to be written, in the order of the columns; ``fields`` is JSON."""

    task_id: int
    lease: int
    sequence: int
    attempt: int
    at: datetime
    level: str
    logger: str
    message: str
    fields: str | None


_COLUMNS: Final = tuple(task_logs.c[name] for name in LoggedLine.__struct_fields__)
_VALUES: Final = {column.name: sa.bindparam(column.name, type_=column.type) for column in _COLUMNS}
_ON_MYSQL: Final = CompiledStatement(insert_new(task_logs, "mysql").values(_VALUES))
_ROW_ON_MYSQL: Final = f"({', '.join(['%s'] * len(_COLUMNS))})"


def insert_lines(connection: Connection, lines: Sequence[LoggedLine]) -> None:
    """Insert lines, but those whose key is there already."""
    if connection.dialect.name == "postgresql":
        _on_postgresql().run(connection, lines=msgspec.json.encode(lines).decode())
    elif connection.dialect.name in MYSQL:
        head = _ON_MYSQL.text(connection.dialect).sql.partition(" VALUES ")[0]
        rows = ", ".join([_ROW_ON_MYSQL] * len(lines))
        connection.exec_driver_sql(f"{head} VALUES {rows}", tuple(chain.from_iterable(_values(lines, "microseconds"))))
    else:
        text = _on_sqlite().text(connection.dialect).sql
        connection.exec_driver_sql(text, list(_values(lines, "milliseconds")))


def _values(lines: Sequence[LoggedLine], precision: str) -> Iterator[tuple[Any, ...]]:
    """The values of the columns; times as text in UTC, which both databases and their drivers take the fastest."""
    for line in lines:
        task_id, lease, sequence, attempt, moment, *rest = msgspec.structs.astuple(line)
        at = moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", precision)
        yield task_id, lease, sequence, attempt, at, *rest


@cache
def _on_sqlite() -> CompiledStatement:
    return CompiledStatement(insert_new(task_logs, "sqlite").values(_VALUES))


@cache
def _on_postgresql() -> CompiledStatement:
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - each process loads its own dialect only

    listed = sa.func.json_to_recordset(sa.cast(sa.bindparam("lines"), postgresql.JSON))
    columns = [sa.column(column.name, column.type) for column in _COLUMNS]
    given = listed.table_valued(*columns, name="given").render_derived(with_types=True)
    chosen = sa.select(*given.c)
    insert = insert_new(task_logs, "postgresql")
    return CompiledStatement(insert.from_select(list(_VALUES), chosen, include_defaults=False))
