"""Databases for the model: empty and migrated; on SQLite without waiting for the disk, which is not what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.store.connection.database import Database
from tests.support.fsync import disable_fsync
from tests.support.servers import DatabaseFactory


@pytest.fixture
def database(request: pytest.FixtureRequest, migrated_factory: DatabaseFactory) -> Iterator[Database]:
    """One of the kind that the test's parameter names; SQLite without one."""
    opened = Database(migrated_factory(getattr(request, "param", "sqlite")), pool_size=2)
    disable_fsync(opened)
    yield opened
    opened.close()
