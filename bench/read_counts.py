"""What an operation of the store reads and locks, in the database's own figures. SQLite tells none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench.samples import ReadCounts
from peerd.store.connection.database import Database

Operation = Callable[[Connection], object]
STALE: Final = 0.15
"""Seconds; InnoDB's table of transactions is made anew when nobody has looked for a tenth of a second."""


def read_by(database: Database, kind: str, operation: Operation) -> ReadCounts:
    """Run it in a transaction that is rolled back, and ask."""
    match kind:
        case "mariadb":
            return _by_mariadb(database, operation)
        case "postgresql":
            return _by_postgresql(database, operation)
        case _:
            return ReadCounts()


def _by_mariadb(database: Database, operation: Operation) -> ReadCounts:
    """The session's own count of the rows that the engine handed out, less what the asking costs."""
    with database.engine.connect() as connection:
        first, second = _handed_out(connection), _handed_out(connection)
        operation(connection)
        rows = _handed_out(connection) - second - (second - first)
        time.sleep(STALE)
        locks = connection.exec_driver_sql(
            "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = connection_id()"
        ).scalar_one()
        connection.rollback()
    return ReadCounts(rows=rows, locks=int(locks))


def _handed_out(connection: Connection) -> int:
    found = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    return sum(int(value) for _, value in found)


def _by_postgresql(database: Database, operation: Operation) -> ReadCounts:
    """The plans of its statements, as they were carried out."""
    said: list[tuple[str, Any]] = []

    def hear(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        said.append((statement, parameters))

    with database.engine.connect() as connection:
        sa.event.listen(database.engine, "before_cursor_execute", hear)
        try:
            operation(connection)
        finally:
            sa.event.remove(database.engine, "before_cursor_execute", hear)
            connection.rollback()
        read = ReadCounts(rows=0, locks=0, pages=0)
        for statement, parameters in said:
            explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
            [found] = connection.exec_driver_sql(explained, parameters).scalar_one()
            _add(read, found["Plan"])
        connection.rollback()
    return read


def _add(read: ReadCounts, plan: Any) -> None:
    assert read.rows is not None
    assert read.locks is not None
    read.pages = (read.pages or 0) + plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    for node in _nodes(plan):
        times = node["Actual Loops"]
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            left_out = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            read.rows += round((node["Actual Rows"] + left_out) * times)
        if node["Node Type"] == "LockRows":
            read.locks += round(node["Actual Rows"] * times)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
