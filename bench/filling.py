"""Filling a table with millions of rows, by INSERT … SELECT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

CHUNK: Final = 200_000
"""Rows in a transaction."""
LARGE: Final = 1 << 30
"""Bytes of buffers and log, for a server that holds millions of rows."""

Moment = int | str
"""Seconds from now; as text, an expression of them, in which ``n`` is the number of the row, from 1."""


class RowTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """So many tasks with these values, or rows of another table; the moments are given in seconds from now.

    ``values`` are expressions of SQL, in which ``n`` is the number of the row, from 1.
    """

    number: int
    values: Mapping[str, str]
    moments: Mapping[str, Moment] = {}
    table: str = "tasks"


def insert_rows(connection: Any, kind: str, rows: RowTemplate) -> None:
    """Insert them into their table, some at a time.

    Args:
        connection: a bare driver's, in autocommit mode.
        kind: mariadb, postgresql or sqlite.
        rows: what.
    """
    moments = {name: _moment(kind, seconds) for name, seconds in rows.moments.items()}
    common = {"queue": "'bench'", "name": "'noop'", "body": "'{\"number\":1}'"} if rows.table == "tasks" else {}
    columns = common | dict(rows.values) | moments
    into = f"INSERT INTO {rows.table} ({', '.join(columns)})"
    values = ", ".join(columns.values())
    cursor = connection.cursor()
    for done in range(0, rows.number, CHUNK):
        cursor.execute(f"{into} {_many(kind, values, done, min(CHUNK, rows.number - done))}")


@contextmanager
def unsafe_fast_fill(connection: Any, kind: str) -> Iterator[None]:
    """Let a server fill faster than it is safe, for the time of the block; its buffers stay large."""
    for statement in _FAST[kind]:
        connection.cursor().execute(statement)
    try:
        yield
    finally:
        for statement in _RESTORE[kind]:
            connection.cursor().execute(statement)


def _many(kind: str, values: str, done: int, number: int) -> str:
    match kind:
        case "mariadb":
            listed = f"JSON_TABLE(concat('[0', repeat(',0', {number - 1}), ']'), '$[*]' COLUMNS (place FOR ORDINALITY))"
            return f"SELECT {values} FROM (SELECT {done} + place AS n FROM {listed} AS listed) AS numbers"
        case "postgresql":
            return f"SELECT {values} FROM generate_series({done + 1}, {done + number}) AS numbers(n)"
        case _:
            counted = f"SELECT {done + 1} UNION ALL SELECT n + 1 FROM numbers LIMIT {number}"
            return f"WITH RECURSIVE numbers(n) AS ({counted}) SELECT {values} FROM numbers"


def _moment(kind: str, seconds: Moment) -> str:
    match kind:
        case "mariadb":
            return f"now(6) + INTERVAL ({seconds}) SECOND"
        case "postgresql":
            return f"clock_timestamp() + ({seconds}) * INTERVAL '1 second'"
        case _:
            return f"strftime('%Y-%m-%d %H:%M:%f', 'now', ({seconds}) || ' seconds')"


_FAST: Final[Mapping[str, tuple[str, ...]]] = {
    "mariadb": (
        f"SET GLOBAL innodb_buffer_pool_size = {LARGE}",
        f"SET GLOBAL /*M! innodb_log_file_size */ /*!80030 innodb_redo_log_capacity */ = {LARGE}",  # MariaDB, MySQL
        "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
    ),
    "postgresql": (
        f"ALTER SYSTEM SET max_wal_size = '{LARGE >> 20}MB'",
        "SELECT pg_reload_conf()",
        "SET synchronous_commit = off",
    ),
    "sqlite": ("PRAGMA synchronous = OFF", "PRAGMA cache_size = -262144"),
}
_RESTORE: Final[Mapping[str, tuple[str, ...]]] = {
    "mariadb": ("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "ANALYZE TABLE tasks"),
    "postgresql": ("RESET synchronous_commit", "VACUUM (ANALYZE) tasks", "CHECKPOINT"),
    "sqlite": ("PRAGMA synchronous = FULL", "ANALYZE tasks", "PRAGMA wal_checkpoint(TRUNCATE)"),
}
