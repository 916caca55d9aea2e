from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy.engine import Connection

from peerd.gateway.operation_queue import LARGE, OperationQueue
from peerd.gateway.operations import DeleteHeld, Holder, ReleaseHeld, StoreCall
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.gateway.reserving import Reserving
from peerd.store.connection.database import Database
from peerd.store.jobs.types import Release
from peerd.store.outcomes.recording import ClaimId

SLOW = 0.4
"""Seconds of a batch, of which the next one waits a part."""
SizesOfBatches = Callable[..., list[int]]


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


@pytest.fixture
def sizes_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SizesOfBatches]:
    """The sizes of batches: of a slow one, and of those that follow when so many clients ask again."""
    with closing(Database(f"sqlite:///{tmp_path / 'batches.sqlite'}")) as database:
        sizes: list[int] = []

        def noting(run_group: Callable[..., Any]) -> Callable[..., Any]:
            def run_and_note(operation: Any, runs: Any, *more: Any, **options: Any) -> Any:
                sizes.append(sum(len(run.operations) for run in runs))
                return run_group(operation, runs, *more, **options)

            return run_and_note

        for name in ("run_group", "run_group_at_once"):
            monkeypatch.setattr(database, name, noting(getattr(database, name)))

        async def run(*clients: int) -> None:
            holder = Holder(node_id=1, incarnation="i", process_id=1, default_ttr=60)
            queue = OperationQueue(database, holder, Mock(), lambda: None)
            queue.start(Reserving(queue.request_batch, Mock(), Mock()))
            for number, asking in enumerate(clients):
                await ask(queue, asking, 0.0 if number else SLOW)
            await queue.finish()
            queue.close()

        def measure(*clients: int) -> list[int]:
            sizes.clear()
            asyncio.run(run(*clients))
            return list(sizes)

        yield measure


def test_a_batch_waits_for_clients_of_a_large_one_before_it_but_not_for_all(sizes_of_batches: SizesOfBatches) -> None:
    assert sizes_of_batches(LARGE + 1, LARGE + 1) == [LARGE + 1, LARGE + 1]
    assert sizes_of_batches(LARGE + 1, 3) == [LARGE + 1, 3], "they do not come"
    sizes = sizes_of_batches(LARGE - 1, LARGE - 1)
    assert (sizes[0], len(sizes) > 2) == (LARGE - 1, True), "after a small batch none waits"


HOLDER = Holder(node_id=1, incarnation="i", process_id=1, default_ttr=60)


def test_a_reservation_that_is_being_deleted_is_not_released_before_its_delete() -> None:
    ended, other = ClaimId(5, 1), ClaimId(6, 1)

    async def order_of_execution() -> list[Any]:
        operations = OperationQueue(Mock(), HOLDER, Mock(), Mock())
        operations.submit("one client", ReleaseHeld(Release(claim=other)), Mock())
        operations.submit("another client", DeleteHeld(ended, keep=False), Mock())
        ReservationEnds(operations, Mock(), Mock(), Mock(), Mock()).return_claim(ended)
        return [operation for run in operations._open_batch.runs for operation in run.operations]

    release = ReleaseHeld(Release(claim=ended))
    executed = asyncio.run(order_of_execution())
    assert executed.index(DeleteHeld(ended, keep=False)) < executed.index(release)
