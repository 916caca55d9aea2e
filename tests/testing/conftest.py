"""`world`: a database of each kind whose clock can be set; `clock` governs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from peerd.store.connection.database import Database
from peerd.testing import Clock
from tests.store.world import World
from tests.support.servers import DatabaseFactory
from tests.testing.mail import ran


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "mariadb"])
def world(request: pytest.FixtureRequest, migrated_factory: DatabaseFactory, clock: Clock) -> Iterator[World]:
    with closing(Database(migrated_factory(request.param))) as database:
        clock.govern(database)
        yield World(database)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()
