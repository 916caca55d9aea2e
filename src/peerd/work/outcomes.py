"""Writing outcomes: what has ended is gathered and written together, and kept while the database is away.

Successes are one statement, everything else is one transaction beside it; each has a lane of its own, in which one
write follows the other. A place of a process is free again when its handler has ended; the task is held, and touched,
until its outcome is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from peerd.domain.outcome import Done, Outcome
from peerd.store.complete import complete
from peerd.store.database import DatabaseThreads
from peerd.store.finish import Held, conclude_all
from peerd.store.outages import Outages

GATHER: Final = 0.003
"""Seconds that a success waits for others at the most; a commit costs about as much."""
TOGETHER: Final = 500
"""Outcomes in one write at the most."""
WORTH_A_COMMIT: Final = 100
"""Successes that wait for no others."""


class Ended(Protocol):
    """An attempt that has ended, and wants to know what becomes of its outcome."""

    @property
    def held(self) -> Held:
        """What names the claim."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        ...

    def written(self, accepted: bool) -> None:  # noqa: FBT001 - a callback
        """It is committed; or it was refused, because the task is not held any more."""
        ...

    def unwritable(self, error: Exception) -> None:
        """The database refuses these very values; the task is held still."""
        ...


class OutcomeWriter:
    """Writes the outcomes of one process.

    Args:
        database: where.
        process_id: who.
        outages: what it learns about the database.
        running: how many attempts run: a success waits for others only while there are any.
    """

    def __init__(
        self, database: DatabaseThreads, process_id: int, outages: Outages, running: Callable[[], int]
    ) -> None:
        self._database = database
        self._process_id = process_id
        self._outages = outages
        self._successes = _Lane(self._complete, lambda waiting: waiting < WORTH_A_COMMIT and running() > 0)
        self._others = _Lane(self._conclude, lambda _: False)

    def add(self, ended: Ended) -> None:
        """Write an outcome soon; `Ended.written` is called when it is committed."""
        lane = self._successes if isinstance(ended.outcome, Done) else self._others
        lane.add(ended)

    async def write(self, held: Held, outcome: Outcome) -> bool:
        """`add`, awaited.

        Returns:
            False when it was refused, because the task is not held any more.

        Raises:
            Exception: the database refuses these very values; the task is held still.
        """
        awaited = _Awaited(held, outcome)
        self.add(awaited)
        return await awaited.answer

    async def _complete(self, batch: Sequence[Ended]) -> set[Held]:
        results = {ended.held: ended.outcome.result for ended in batch if isinstance(ended.outcome, Done)}
        return await self._outages.outlast(
            lambda: self._database.run_each(complete, self._process_id, results),
        )

    async def _conclude(self, batch: Sequence[Ended]) -> set[Held]:
        outcomes: Mapping[Held, Outcome] = {ended.held: ended.outcome for ended in batch}
        return await self._outages.outlast(
            lambda: self._database.run(conclude_all, self._process_id, outcomes),
        )


class _Awaited:
    """An outcome that somebody waits for."""

    def __init__(self, held: Held, outcome: Outcome) -> None:
        self.held = held
        self.outcome = outcome
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def written(self, accepted: bool) -> None:  # noqa: FBT001 - a callback
        if not self.answer.done():
            self.answer.set_result(accepted)

    def unwritable(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Lane:
    """What waits to be written in one way.

    Args:
        write: writes a batch; answers which of it were refused.
        is_too_few: whether so many are worth waiting for others.
    """

    def __init__(
        self, write: Callable[[Sequence[Ended]], Awaitable[set[Held]]], is_too_few: Callable[[int], bool]
    ) -> None:
        self._write = write
        self._is_too_few = is_too_few
        self._waiting: list[Ended] = []
        self._writing: asyncio.Task[None] | None = None

    def add(self, ended: Ended) -> None:
        self._waiting.append(ended)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="outcomes")

    async def _write_all(self) -> None:
        """Write what waits, and what came meanwhile, until nothing waits."""
        while self._waiting:
            if self._is_too_few(len(self._waiting)):
                await asyncio.sleep(GATHER)
            batch, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            await self._write_batch(batch)

    async def _write_batch(self, batch: Sequence[Ended]) -> None:
        try:
            refused = await self._write(batch)
        except Exception as error:  # noqa: BLE001 - one of them cannot be written; the others must not suffer for it
            if len(batch) == 1:
                batch[0].unwritable(error)
            else:
                for one in batch:
                    await self._write_batch([one])
            return
        for ended in batch:
            self._tell(ended, accepted=ended.held not in refused)

    def _tell(self, ended: Ended, *, accepted: bool) -> None:
        """Whoever hears of one must not keep the others from being written."""
        try:
            ended.written(accepted)
        except Exception as error:  # noqa: BLE001 - see above; the process is tainted by it
            message = f"what follows the outcome of task {ended.held.id} failed"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
