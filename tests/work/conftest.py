"""`harness`: on SQLite. `each_harness`: on each of the three databases. `gates`: handlers that wait for the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from peerd.testing import FaultyDatabase
from tests.store.world import World
from tests.support.fsync import disable_fsync
from tests.support.servers import DatabaseFactory
from tests.work.harness import Gates, RunnerHarness


@pytest.fixture
async def harness(migrated_factory: DatabaseFactory) -> AsyncIterator[RunnerHarness]:
    async for made in harness_on(migrated_factory("sqlite")):
        yield made


@pytest.fixture
async def each_harness(migrated_database: str) -> AsyncIterator[RunnerHarness]:
    async for made in harness_on(migrated_database):
        yield made


@pytest.fixture
async def gates() -> Gates:
    return Gates()


async def harness_on(url: str) -> AsyncIterator[RunnerHarness]:
    database = FaultyDatabase(url)
    disable_fsync(database)
    made = RunnerHarness(database, World(database))
    yield made
    await made.end()
    database.close()
