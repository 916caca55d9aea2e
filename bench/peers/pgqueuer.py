"""PgQueuer on PostgreSQL, by asyncpg. ``at_once`` is its batch_size; it is durable as it installs itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

from bench.peers import contract

SEVERAL = 1000
"""Jobs in one of its bulk enqueues."""


class Measured(contract.PeerQueue):
    """PgQueuer."""

    distribution = "pgqueuer"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._runner = asyncio.Runner()
        self._queries: Queries | None = None

    def prepare(self) -> None:
        """Install its tables, if they are not there, and empty them."""

        async def prepared(queries: Any) -> None:
            if not await queries.schema_is_installed():
                await queries.install()
            await queries.clear_queue()

        self._ask(prepared)

    def enqueue_singly(self, number: int) -> None:
        """Each in a statement of its own."""

        async def enqueue(queries: Any) -> None:
            for _ in range(number):
                await queries.enqueue("noop", None)

        self._ask(enqueue)

    def enqueue_together(self, number: int) -> None:
        """Its bulk enqueue, a thousand at a time."""

        async def enqueue(queries: Any) -> None:
            for done in range(0, number, SEVERAL):
                many = min(SEVERAL, number - done)
                await queries.enqueue(["noop"] * many, [None] * many, [0] * many)

        self._ask(enqueue)

    def enqueue_note(self, number: int) -> None:
        """One job with its number."""
        self._ask(lambda queries: queries.enqueue("note", str(number).encode()))

    def left(self) -> int:
        """What is in its queue's table; what is done has gone to its log."""

        async def count(queries: Any) -> int:
            return sum(found.count for found in await queries.queue_size())

        return int(self._ask(count))

    def work(self, at_once: int) -> None:
        """As its quick start does, with this batch_size."""

        async def run() -> None:
            worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))

            @worker.entrypoint("noop")
            async def noop(_: Any) -> None:
                contract.noop()

            @worker.entrypoint("note")
            async def note(job: Any) -> None:
                contract.note(int(job.payload))

            await worker.run(batch_size=at_once)

        asyncio.run(run())

    def _ask(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            if self._queries is None:
                self._queries = Queries(AsyncpgDriver(await asyncpg.connect(self.url)))
            return await question(self._queries)

        return self._runner.run(asked())
