"""A SQLite database for one test: real tables in a file that is deleted afterwards."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import event

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.testing.faulty_database import FaultyDatabase

FILE_NAME = "peerd.sqlite"


class TemporaryDatabase(FaultyDatabase):
    """A `FaultyDatabase` with peerd's tables, empty; closing it deletes it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="peerd-")
        path = Path(self._folder.name) / FILE_NAME
        path.write_bytes(_migrated())
        super().__init__(f"sqlite:///{path}")
        event.listen(self.engine, "connect", _disable_sync)

    def close(self) -> None:
        """Close all connections, and delete the file."""
        super().close()
        self._folder.cleanup()


def _disable_sync(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")  # it need not survive a power cut


@cache
def _migrated() -> bytes:
    """The file of a migrated database: made once in a process, because making it takes longer than most tests."""
    with TemporaryDirectory(prefix="peerd-") as folder:
        path = Path(folder) / FILE_NAME
        with closing(Database(f"sqlite:///{path}")) as database:
            migrate(database)
            with database.engine.connect() as connection:
                connection.exec_driver_sql("COMMIT")
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()
