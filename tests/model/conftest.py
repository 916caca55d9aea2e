"""Databases for the model: empty and migrated; on SQLite without waiting for the disk, which is not what is tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.store.connection.database import Database
from tests.support.servers import DatabaseFactory


@pytest.fixture
def database(request: pytest.FixtureRequest, migrated_factory: DatabaseFactory) -> Iterator[Database]:
    """One of the kind that the test's parameter names; SQLite without one."""
    opened = Database(migrated_factory(getattr(request, "param", "sqlite")), pool_size=2)
    if opened.name == "sqlite":
        sa.event.listen(opened.engine, "connect", disable_fsync)
    yield opened
    opened.close()


def disable_fsync(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF")
