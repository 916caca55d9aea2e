"""The floor: what the bare driver does with three statements, one connection and no code of ours around it.

It speaks the driver that peerd uses in the same run (PyMySQL or mysqlclient, psycopg, sqlite3). Nobody can do fewer
statements and commits for a batch of this size; peerd's rate divided by this one says what peerd costs.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import psycopg
import pymysql
from sqlalchemy.engine import URL

from bench.floor_tables import FloorTable

BODY: Final = '{"number":1}'


class Floor:
    """The bare driver on one table.

    Args:
        kind: mariadb, postgresql or sqlite.
        connection: in autocommit mode, so that one statement is one transaction.
        table: where.
    """

    def __init__(self, kind: str, connection: Any, table: FloorTable) -> None:
        self._kind = kind
        self._cursor = connection.cursor()
        self._table = table
        self._begin = "BEGIN IMMEDIATE" if kind == "sqlite" else "BEGIN"
        self._locks = "" if kind == "sqlite" else " FOR UPDATE SKIP LOCKED"

    def create(self) -> None:
        """Create the table, where it is not peerd's."""
        for statement in self._table.definition.get(self._kind, "").split(";"):
            if statement.strip():
                self._cursor.execute(statement)

    def insert(self, number: int, name: str = "noop") -> None:
        """Insert so many tasks of this name, and commit."""
        into = f"INSERT INTO {self._table.name} (queue, name, body)"
        match self._kind:
            case "mariadb":
                rows = ", ".join([f"('bench', '{name}', %s)"] * number)
                self._cursor.execute(f"{into} VALUES {rows}", [BODY] * number)
            case "postgresql":
                self._cursor.execute(f"{into} SELECT 'bench', '{name}', unnest(%s::text[])", ([BODY] * number,))
            case _:
                self._cursor.execute(self._begin)
                self._cursor.executemany(f"{into} VALUES ('bench', '{name}', ?)", [(BODY,)] * number)
                self._cursor.execute("COMMIT")

    def claim(self, limit: int) -> list[int]:
        """Lock the next tasks, mark them working, and commit; their ids."""
        table = self._table
        self._cursor.execute(self._begin)
        self._cursor.execute(
            f"SELECT id, name, body FROM {table.name} WHERE {self._quoted(table.pending)}"
            f" ORDER BY {table.order} LIMIT {limit}{self._locks}",
            (),
        )
        ids = [row[0] for row in self._cursor.fetchall()]
        self._update(table.on_claim, ids)
        self._cursor.execute("COMMIT")
        return ids

    def complete(self, ids: Sequence[int]) -> None:
        """Mark tasks done, and commit."""
        self._update(self._table.on_complete, ids)

    def _update(self, values: str, ids: Sequence[int]) -> None:
        update = f"UPDATE {self._table.name} SET {self._quoted(values)} WHERE id"
        match self._kind:
            case "mariadb":
                self._cursor.execute(f"{update} IN ({', '.join(map(str, ids))})", ())
            case "postgresql":
                self._cursor.execute(f"{update} = ANY(%s)", (list(ids),))
            case _:
                self._cursor.execute(f"{update} IN ({', '.join('?' * len(ids))})", ids)
        assert self._cursor.rowcount == len(ids)

    def _quoted(self, text: str) -> str:
        """Percent signs, for the drivers to which they mean something."""
        return text if self._kind == "sqlite" else text.replace("%", "%%")


def connect(url: URL, synchronous: str = "FULL") -> Any:
    """A connection of the bare driver that an address names, in autocommit mode, set up as peerd's own are."""
    match url.get_driver_name():
        case "pymysql" | "mysqldb" as driver:
            connected = (pymysql if driver == "pymysql" else importlib.import_module("MySQLdb")).connect(
                host=url.host,
                port=url.port or 0,
                user=url.username,
                password=url.password or "",
                database=url.database,
                charset="utf8mb4",
                autocommit=True,
                init_command="SET time_zone = '+00:00'",
            )
            connected.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            return connected
        case "psycopg":
            return psycopg.connect(
                host=url.host, port=url.port, user=url.username, dbname=url.database, autocommit=True
            )
        case _:
            connection = sqlite3.connect(url.database or "", isolation_level=None, timeout=30, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            return connection
