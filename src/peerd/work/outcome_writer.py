"""Writes the outcomes of a process's attempts: in batches, retried while the database is away.

Successes are one statement; all other outcomes are one transaction. Successes and other outcomes are written beside
each other, each with one write at a time. An outcome whose row another session has locked is retried beside both, so
that no other outcome waits for that lock. An outcome that the database refuses becomes a failure; if it refuses that
too, no write is possible, and the outcome waits until one is. A slot is free again when its handler has ended; the task
stays held, and touched, until its outcome is committed or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from peerd.domain.errors import RowLocked
from peerd.domain.outcome import (
    Done,
    Failed,
)
from peerd.runtime.observability.events import AttemptEnded, ComponentFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import ClaimId, WriteResult, complete, complete_available, record_outcomes
from peerd.work.active_attempt import ActiveAttempt, attempt_ended_event, claim_lost_event
from peerd.work.active_claims import ActiveClaims

BATCH_DELAY: Final = 0.003
"""Seconds that a success waits for others at the most; a commit costs about as much."""
MAX_BATCH: Final = 500
"""Outcomes in one write at the most."""
RETRY_LOCKED_AFTER: Final = 1.0
"""Seconds until an outcome is retried whose row another session has locked."""
RETRY_REFUSED_AFTER: Final = 5.0
"""Seconds until an outcome is retried that the database refuses in any form."""
REPORT_REFUSED_EVERY: Final = 60.0
"""Seconds between two reports that outcomes are refused."""
FULL_BATCH: Final = 100
"""Successes that do not wait for others."""

Batch = Sequence[ActiveAttempt]


class OutcomeWriter:
    """Writes the outcomes of one process, then drops the claims and emits the events of the attempts.

    `written` is called with the attempts of each batch, when their claims have been dropped.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        process_id: int,
        active_claims: ActiveClaims,
        outages: OutageTracker,
        events: EventBus,
        *,
        written: Callable[[Batch], object],
    ) -> None:
        self._database = database
        self._process_id = process_id
        self._active_claims = active_claims
        self._outages = outages
        self._events = events
        self._after_write = written
        self.waits_for_more = False
        """Whether attempts run, so that a success is worth keeping for a moment."""
        self._successes = _WriteQueue(
            partial(self._write, self._complete), lambda waiting: waiting < FULL_BATCH and self.waits_for_more
        )
        self._other_outcomes = _WriteQueue(partial(self._write, self._record_outcomes))
        self._locked = _WriteQueue(self._write_locked)
        self._count = 0
        self._next_report = 0.0
        self._all_written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return self._count

    def add(self, attempt: ActiveAttempt) -> None:
        self._count += 1
        self._enqueue(attempt)

    async def wait_until_written(self) -> None:
        while self._count:
            self._all_written.clear()
            await self._all_written.wait()

    def _enqueue(self, attempt: ActiveAttempt) -> None:
        queue = self._successes if isinstance(attempt.outcome, Done) else self._other_outcomes
        queue.add(attempt)

    async def _write(self, write: Callable[[Batch], Awaitable[WriteResult]], batch: Batch) -> None:
        """Write a batch; if the database refuses it, each outcome by itself, so that one does not harm the others."""
        try:
            result = await self._outages.retry_while_down(partial(write, batch))
        except Exception as error:  # noqa: BLE001 - the driver chooses the error of a refused value
            if len(batch) == 1:
                self._on_refused(batch[0], error)
            else:
                for attempt in batch:
                    await self._write(write, [attempt])
            return
        if result.locked:
            for attempt in batch:
                if attempt.held in result.locked:
                    self._loop.call_later(RETRY_LOCKED_AFTER, self._locked.add, attempt)
            batch = [attempt for attempt in batch if attempt.held not in result.locked]
        self._on_written(batch, result.refused)

    async def _write_locked(self, batch: Batch) -> None:
        for write, kind in ((self._complete_available, True), (self._record_outcomes, False)):
            if of_kind := [attempt for attempt in batch if isinstance(attempt.outcome, Done) is kind]:
                await self._write(write, of_kind)

    async def _complete(self, batch: Batch) -> WriteResult:
        try:
            refused = await self._database.run_short(complete, self._process_id, _results_of(batch))
        except RowLocked:
            return await self._complete_available(batch)
        return WriteResult(refused, set())

    async def _complete_available(self, batch: Batch) -> WriteResult:
        return await self._database.run(complete_available, self._process_id, _results_of(batch))

    async def _record_outcomes(self, batch: Batch) -> WriteResult:
        outcomes = {attempt.held: attempt.outcome for attempt in batch}
        return await self._database.run(record_outcomes, self._process_id, outcomes)

    def _on_written(self, batch: Batch, refused: AbstractSet[ClaimId]) -> None:
        """Drop the claims of a batch that is committed; `refused` are those that were not held any more."""
        self._active_claims.drop([attempt.held for attempt in batch])
        if refused or self._events.has_listeners(AttemptEnded):
            for attempt in batch:
                self._emit_ended(attempt, is_refused=attempt.held in refused)
        self._remove(batch)

    def _emit_ended(self, attempt: ActiveAttempt, *, is_refused: bool) -> None:
        self._events.emit(
            claim_lost_event(attempt.task, "outcome")
            if is_refused
            else attempt_ended_event(attempt.task, attempt.outcome, attempt.seconds),
            attempt.take_raised(),
        )

    def _on_refused(self, attempt: ActiveAttempt, error: Exception) -> None:
        """Write instead that the attempt failed, in case the values are the cause; if that is refused too, wait."""
        described = describe_exception(error)
        if attempt.execution is not None and attempt.refused_outcome is None:
            failed = Failed(error=f"its outcome could not be written: {described}", retry_in=attempt.execution.delay())
            attempt.refused_outcome, attempt.outcome = attempt.outcome, failed
            self._enqueue(attempt)
            return
        attempt.outcome, attempt.refused_outcome = attempt.refused_outcome or attempt.outcome, None
        self._loop.call_later(RETRY_REFUSED_AFTER, self._enqueue, attempt)
        if self._loop.time() >= self._next_report:
            self._next_report = self._loop.time() + REPORT_REFUSED_EVERY
            self._events.emit(ComponentFailed(component="outcomes", error=described, again_in=RETRY_REFUSED_AFTER))

    def _remove(self, batch: Batch) -> None:
        self._count -= len(batch)
        if not self._count:
            self._all_written.set()
        self._after_write(batch)


def _results_of(batch: Batch) -> dict[ClaimId, str | None]:
    return {attempt.held: attempt.outcome.result for attempt in batch if isinstance(attempt.outcome, Done)}


class _WriteQueue:
    """Outcomes that are written in the same way, batch after batch; one that `is_small` first waits for more."""

    def __init__(
        self, write: Callable[[Batch], Awaitable[None]], is_small: Callable[[int], bool] = lambda _: False
    ) -> None:
        self._write = write
        self._is_small = is_small
        self._waiting: list[ActiveAttempt] = []
        self._writing: asyncio.Task[None] | None = None

    def add(self, attempt: ActiveAttempt) -> None:
        self._waiting.append(attempt)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="outcomes")

    async def _write_all(self) -> None:
        while self._waiting:
            if self._is_small(len(self._waiting)):
                await asyncio.sleep(BATCH_DELAY)
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            await self._write(batch)
