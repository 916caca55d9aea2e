"""Writing outcomes: successes gathered and written together, anything else at once, and all of it kept while the
database is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from peerd.domain.outcome import Done, Outcome
from peerd.store.database import DatabaseThreads
from peerd.store.finish import Held, complete, conclude
from peerd.store.outages import Outages

GATHER: Final = 0.003
"""Seconds that a success waits for others at the most; a commit costs about as much."""
TOGETHER: Final = 500


class OutcomeWriter:
    """Writes the outcomes of one process.

    Args:
        database: where.
        process_id: who.
        outages: what it learns about the database.
        in_flight: how many tasks run or wait to be written: a success waits for others only while there are any.
    """

    def __init__(
        self, database: DatabaseThreads, process_id: int, outages: Outages, in_flight: Callable[[], int]
    ) -> None:
        self._database = database
        self._process_id = process_id
        self._outages = outages
        self._in_flight = in_flight
        self._waiting: list[tuple[Held, str | None, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, held: Held, outcome: Outcome) -> bool:
        """Write an outcome; returns when it is committed.

        Returns:
            False when it was refused, because the task is not held any more.

        Raises:
            Exception: the database refuses these very values; the task is held still.
        """
        match outcome:
            case Done(result):
                return await self._gathered(held, result)
            case other:
                return await self._outages.outlast(lambda: self._database.run(conclude, self._process_id, held, other))

    async def _gathered(self, held: Held, result: str | None) -> bool:
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((held, result, accepted))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="outcomes")
        return await accepted

    async def _write_all(self) -> None:
        """Write what waits, and what came meanwhile, until nothing waits."""
        if len(self._waiting) < self._in_flight():
            await asyncio.sleep(GATHER)
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            await self._write_batch(batch)

    async def _write_batch(self, batch: list[tuple[Held, str | None, asyncio.Future[bool]]]) -> None:
        results = {held: result for held, result, _ in batch}
        try:
            refused = await self._outages.outlast(lambda: self._database.run(complete, self._process_id, results))
        except asyncio.CancelledError:
            for _, _, accepted in batch:
                accepted.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - one of them cannot be written; the others must not suffer for it
            if len(batch) > 1:
                for one in batch:
                    await self._write_batch([one])
            elif not batch[0][2].done():
                batch[0][2].set_exception(error)
            return
        for held, _, accepted in batch:
            if not accepted.done():
                accepted.set_result(held not in refused)
