"""A node with schedules, on a database of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from peerd.domain.schedule import Schedule
from peerd.store.connection.database import Database
from tests.unit.schedules import functions
from tests.unit.schedules.fake_node import FakeNode
from tests.unit.schedules.functions import CALLS, GATES


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{shutil.copy(migrated_file, tmp_path)}")
    yield database
    database.close()


@pytest.fixture(autouse=True)
async def gate() -> AsyncIterator[asyncio.Event]:
    CALLS.clear()
    functions.Falters.times = 0
    GATES["gate"] = asyncio.Event()
    yield GATES["gate"]
    GATES["gate"].set()


@pytest.fixture
async def wires() -> AsyncIterator[list[FakeNode]]:
    made: list[FakeNode] = []
    yield made
    for fake in made:
        await fake.stop()


@pytest.fixture
def node(database: Database, wires: list[FakeNode]) -> Any:
    """Make a node that has schedules."""

    def make(*given: Schedule, name: str = "a") -> FakeNode:
        wires.append(FakeNode(database, *given, name=name))
        return wires[-1]

    return make
