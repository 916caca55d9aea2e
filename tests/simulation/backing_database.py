"""The real database of the simulations: one SQLite file, emptied between two runs, and the clock that it reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import event

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.testing.clock import START, Clock
from tests.simulation.plan import PlannedLimit

TABLES = ("tasks", "attempts", "unique_keys", "processes", "nodes", "queues", "limits", "turns", "limit_starts")


class BackingDatabase:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "simulation.sqlite"
        self.clock = Clock()
        self.database = Database(f"sqlite:///{self.path}", pool_size=2)
        self.clock.govern(self.database)
        event.listen(self.database.engine, "connect", _write_lazily)
        migrate(self.database)

    def empty(self) -> None:
        self.clock.set(START)
        with sqlite3.connect(self.path) as connection:
            for table in TABLES:
                connection.execute(f"DELETE FROM {table}")
            connection.execute("DELETE FROM sqlite_sequence")
        connection.close()

    def limit(self, limits: Iterable[PlannedLimit]) -> None:
        with sqlite3.connect(self.path) as connection:
            columns = "queue, limit_key, running, starts, period"
            rows = [msgspec.structs.astuple(limit) for limit in limits]
            connection.executemany(f"INSERT INTO limits ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
        connection.close()

    def close(self) -> None:
        self.database.close()


@contextmanager
def open_backing_database(folder: Path) -> Iterator[BackingDatabase]:
    made = BackingDatabase(folder)
    try:
        yield made
    finally:
        made.close()


def _write_lazily(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF")
