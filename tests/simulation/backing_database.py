"""The real database of the simulations: one SQLite file, emptied between two runs, and the clock that it reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.testing.clock import START, Clock
from tests.simulation.plan import PlannedLimit
from tests.support.fsync import disable_fsync

TABLES = ("tasks", "attempts", "unique_keys", "processes", "nodes", "queues", "limits", "turns", "limit_starts")


class BackingDatabase:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "simulation.sqlite"
        self.clock = Clock()
        self.database = Database(f"sqlite:///{self.path}", pool_size=2)
        self.clock.govern(self.database)
        disable_fsync(self.database)
        migrate(self.database)

    def prepare(self, limits: Sequence[PlannedLimit]) -> None:
        """Begin as with new tables, so that the same run sees the same ids."""
        self.clock.set(START)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for table in (*TABLES, "sqlite_sequence"):
                connection.execute(f"DELETE FROM {table}")
            insert = "INSERT INTO limits (queue, limit_key, running, starts, period) VALUES (?, ?, ?, ?, ?)"
            connection.executemany(insert, map(msgspec.structs.astuple, limits))


@contextmanager
def open_backing_database(folder: Path) -> Iterator[BackingDatabase]:
    made = BackingDatabase(folder)
    with closing(made.database):
        yield made
