"""SAQ on Redis: coroutines in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from saq import Queue, Worker

from bench.peers import contract

SEVERAL = 100
"""Enqueued at once; it has no call for many."""


async def noop(_: Any) -> None:
    """Count."""
    contract.noop()


async def note(_: Any, *, number: int) -> None:
    """Note."""
    contract.note(number)


class Measured(contract.PeerQueue):
    """SAQ."""

    distribution = "saq"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._runner = asyncio.Runner()
        self._queue = Queue.from_url(url)

    def prepare(self) -> None:
        """Empty the store."""

        async def prepared() -> None:
            await self._queue.connect()
            await self._queue.redis.flushdb()

        self._run(prepared())

    def enqueue_singly(self, number: int) -> None:
        """Each awaited before the next."""

        async def enqueue() -> None:
            for _ in range(number):
                await self._queue.enqueue("noop")

        self._run(enqueue())

    def enqueue_together(self, number: int) -> None:
        """Many at once."""

        async def enqueue() -> None:
            for done in range(0, number, SEVERAL):
                await asyncio.gather(*(self._queue.enqueue("noop") for _ in range(min(SEVERAL, number - done))))

        self._run(enqueue())

    def enqueue_note(self, number: int) -> None:
        """One job."""
        self._run(self._queue.enqueue("note", number=number))

    def left(self) -> int:
        """Jobs that are queued or active."""

        async def count() -> int:
            return sum([await self._queue.count(kind) for kind in ("queued", "active")])

        return int(self._run(count()))

    def work(self, at_once: int) -> None:
        """Its worker."""

        async def run() -> None:
            await Worker(Queue.from_url(self.url), functions=[noop, note], concurrency=at_once).start()

        asyncio.run(run())

    def _run(self, asked: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(asked)
