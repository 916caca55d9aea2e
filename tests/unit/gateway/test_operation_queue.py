"""Batches: the next one waits for the clients that were just answered, but not for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple
from unittest.mock import Mock

import pytest
from sqlalchemy.engine import Connection

from peerd.gateway.operation_queue import LARGE, OperationQueue
from peerd.gateway.operations import Holder, StoreCall
from peerd.gateway.reserving import Reserving
from peerd.store.connection.database import Database

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HOLDER = Holder(node_id=1, incarnation="i", process_id=1, default_ttr=60)
SLOW = 0.4
"""Seconds of a batch, of which the next one waits a part."""


class RecordingDatabase(Database):
    """A database that notes how many operations each batch has."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sizes: list[int] = []

    def run_group(self, operation: Callable[[Connection, *Ts], T], /, *args: *Ts, durable: bool = True) -> T:
        self._note(args)
        return super().run_group(operation, *args, durable=durable)

    def run_group_at_once(self, operation: Callable[[Connection, *Ts], T], /, *args: *Ts, durable: bool = True) -> T:
        self._note(args)
        return super().run_group_at_once(operation, *args, durable=durable)

    def _note(self, args: tuple[Any, ...]) -> None:
        self.sizes.append(sum(len(run.operations) for run in args[0]))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RecordingDatabase]:
    with closing(RecordingDatabase(f"sqlite:///{tmp_path / 'batches.sqlite'}")) as database:
        yield database


def rest(_: Connection, seconds: float) -> None:
    time.sleep(seconds)


async def ask(queue: OperationQueue, clients: int, seconds: float = 0.0) -> None:
    """So many clients ask for something, one after another, and get their answers. The first of it takes a time."""
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(clients)]
    for client, answer in enumerate(answers):
        queue.submit(client, StoreCall(rest, (0.0 if client else seconds,)), answer.set_result)
        queue.offer(client, "tube", is_certain=True)  # as a put does; it is still one command
        for _ in range(0 if seconds else 3):
            await asyncio.sleep(0)  # a batch that does not wait is executed meanwhile
    await asyncio.gather(*answers)


def sizes_of_batches(database: RecordingDatabase, *clients: int) -> list[int]:
    """The sizes of batches: of a slow one, and of those that follow when so many clients ask again."""

    database.sizes.clear()

    async def run() -> None:
        queue = OperationQueue(database, HOLDER, Mock(), lambda: None)
        queue.start(Reserving(queue.request_batch, Mock(), Mock()))
        for number, asking in enumerate(clients):
            await ask(queue, asking, 0.0 if number else SLOW)
        await queue.finish()
        queue.close()

    asyncio.run(run())
    return list(database.sizes)


def test_a_batch_waits_for_the_clients_of_a_large_one_before_it_but_not_for_all(database: RecordingDatabase) -> None:
    assert sizes_of_batches(database, LARGE + 1, LARGE + 1) == [LARGE + 1, LARGE + 1]
    assert sizes_of_batches(database, LARGE + 1, 3) == [LARGE + 1, 3], "they do not come"


def test_after_a_small_batch_none_waits(database: RecordingDatabase) -> None:
    sizes = sizes_of_batches(database, LARGE - 1, LARGE - 1)
    assert sizes[0] == LARGE - 1
    assert len(sizes) > 2
