"""Writing outcomes: what has ended is gathered and written together, and kept while the database is away.

Successes are one statement, everything else is one transaction beside it; each has a lane of its own, in which one
write follows the other. What is about a row that another session has locked is written later, in a third lane, so that
nothing else waits for that lock. A place of a process is free again when its handler has ended; the task is held, and
touched, until its outcome is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

from peerd.domain.errors import RowLocked
from peerd.domain.outcome import Done, Outcome
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes.complete import complete, complete_available
from peerd.store.outcomes.recording import ClaimId, WriteResult, record_outcomes

BATCH_DELAY: Final = 0.003
"""Seconds that a success waits for others at the most; a commit costs about as much."""
MAX_BATCH: Final = 500
"""Outcomes in one write at the most."""
RETRY_LOCKED_AFTER: Final = 1.0
"""Seconds after which an outcome is tried again whose task's row another session has locked."""
FULL_BATCH: Final = 100
"""Successes that wait for no others."""


class EndedAttempt(Protocol):
    """An attempt that has ended."""

    @property
    def held(self) -> ClaimId:
        """What names the claim."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        ...


E = TypeVar("E", bound=EndedAttempt)


class OutcomeWriter(Generic[E]):
    """Writes the outcomes of one process.

    Args:
        database: where.
        process_id: who.
        outages: what it learns about the database.
        running: how many attempts run: a success waits for others only while there are any.
        written: told what is committed together, and the claims among it that were refused, because they are not held
            any more.
        unwritable: told what the database refuses for its very values; the task is held still.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        process_id: int,
        outages: OutageTracker,
        *,
        running: Callable[[], int],
        written: Callable[[Sequence[E], AbstractSet[ClaimId]], None],
        unwritable: Callable[[E, Exception], None],
    ) -> None:
        self._database = database
        self._process_id = process_id
        self._outages = outages
        self._written = written
        self._unwritable = unwritable
        self._successes = _WriteQueue(self._write_successes, lambda waiting: waiting < FULL_BATCH and running() > 0)
        self._other_outcomes = _WriteQueue(self._write_others, lambda _: False)
        self._locked = _WriteQueue(self._write_locked, lambda _: False)

    def add(self, ended: E) -> None:
        """Write an outcome soon."""
        lane = self._successes if isinstance(ended.outcome, Done) else self._other_outcomes
        lane.add(ended)

    async def _write_successes(self, batch: Sequence[E]) -> None:
        await self._write(self._complete, batch)

    async def _write_others(self, batch: Sequence[E]) -> None:
        await self._write(self._record_outcomes, batch)

    async def _write_locked(self, batch: Sequence[E]) -> None:
        for write, kind in ((self._complete_free, True), (self._record_outcomes, False)):
            of_kind = [ended for ended in batch if isinstance(ended.outcome, Done) is kind]
            if of_kind:
                await self._write(write, of_kind)

    async def _write(self, write: Callable[[Sequence[E]], Awaitable[WriteResult]], batch: Sequence[E]) -> None:
        try:
            written = await write(batch)
        except Exception as error:  # noqa: BLE001 - one of them cannot be written; the others must not suffer for it
            if len(batch) == 1:
                self._unwritable(batch[0], error)
            else:
                for one in batch:
                    await self._write(write, [one])
        else:
            if written.locked:
                self._write_later([ended for ended in batch if ended.held in written.locked])
                batch = [ended for ended in batch if ended.held not in written.locked]
            self._written(batch, written.refused)

    def _write_later(self, locked: Sequence[E]) -> None:
        for ended in locked:
            asyncio.get_running_loop().call_later(RETRY_LOCKED_AFTER, self._locked.add, ended)

    async def _complete(self, batch: Sequence[E]) -> WriteResult:
        results = _results_of(batch)

        async def write() -> WriteResult:
            try:
                return WriteResult(await self._database.run_autocommit(complete, self._process_id, results), set())
            except RowLocked:
                return await self._database.run(complete_available, self._process_id, results)

        return await self._outages.retry_while_down(write)

    async def _complete_free(self, batch: Sequence[E]) -> WriteResult:
        results = _results_of(batch)
        return await self._outages.retry_while_down(
            lambda: self._database.run(complete_available, self._process_id, results)
        )

    async def _record_outcomes(self, batch: Sequence[E]) -> WriteResult:
        outcomes: Mapping[ClaimId, Outcome] = {ended.held: ended.outcome for ended in batch}
        return await self._outages.retry_while_down(
            lambda: self._database.run(record_outcomes, self._process_id, outcomes),
        )


def _results_of(batch: Sequence[EndedAttempt]) -> dict[ClaimId, str | None]:
    return {ended.held: ended.outcome.result for ended in batch if isinstance(ended.outcome, Done)}


class _WriteQueue(Generic[E]):
    """What waits to be written in one way.

    Args:
        write: writes a batch.
        is_too_few: whether so many are worth waiting for others.
    """

    def __init__(self, write: Callable[[Sequence[E]], Awaitable[None]], is_too_few: Callable[[int], bool]) -> None:
        self._write = write
        self._is_too_few = is_too_few
        self._waiting: list[E] = []
        self._writing: asyncio.Task[None] | None = None

    def add(self, ended: E) -> None:
        self._waiting.append(ended)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="outcomes")

    async def _write_all(self) -> None:
        """Write what waits, and what came meanwhile, until nothing waits."""
        while self._waiting:
            if self._is_too_few(len(self._waiting)):
                await asyncio.sleep(BATCH_DELAY)
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            await self._write(batch)
