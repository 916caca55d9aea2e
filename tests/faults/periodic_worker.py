"""A periodic worker of the nodes under fire: each round it counts the tasks, as a report would."""

from __future__ import annotations

import asyncio

from peerd import Client, Worker
from peerd.domain.errors import DatabaseBusy, DatabaseUnavailable


class CountingWorker(Worker):
    """A database that is away is waited for."""

    sleep = 1.0

    async def setup(self) -> None:
        self._client = await asyncio.to_thread(Client.from_config)

    async def loop(self) -> None:
        try:
            await self._client.aio.tasks.counts()
        except (DatabaseUnavailable, DatabaseBusy):
            return

    async def teardown(self) -> None:
        await asyncio.to_thread(self._client.close)
