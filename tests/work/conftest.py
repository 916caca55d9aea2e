"""`bench`: on SQLite. `each_bench`: on each of the three databases. `gates`: handlers that wait for the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from peerd.store.schema.migrate import migrate
from peerd.testing import FaultyDatabase
from tests.store.world import World
from tests.support.servers import DatabaseFactory
from tests.work.harness import Bench, Gates


@pytest.fixture
async def bench(database_factory: DatabaseFactory) -> AsyncIterator[Bench]:
    async for made in bench_of(database_factory("sqlite")):
        yield made


@pytest.fixture
async def each_bench(database: str) -> AsyncIterator[Bench]:
    async for made in bench_of(database):
        yield made


@pytest.fixture
async def gates() -> Gates:
    return Gates()


async def bench_of(url: str) -> AsyncIterator[Bench]:
    database = FaultyDatabase(url)
    migrate(database)
    made = Bench(database, World(database))
    yield made
    await made.end()
    database.close()
