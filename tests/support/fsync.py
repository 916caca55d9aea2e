"""SQLite that does not wait for the disk, where that is not what is tested."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peerd.store.connection.database import Database


def disable_fsync(database: Database) -> None:
    """Let what is committed reach the disk when the system likes; on a server nothing is changed."""
    if database.name == "sqlite":
        for engine in database.engines.distinct():
            sa.event.listen(engine, "connect", _write_lazily)


def _write_lazily(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF")
