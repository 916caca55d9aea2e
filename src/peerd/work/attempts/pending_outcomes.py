"""What has ended and is not written yet: held, and touched, until its outcome is committed or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from peerd.domain.outcome import Failed
from peerd.runtime.observability.events import AttemptEnded, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes.recording import ClaimId
from peerd.work.attempts.active_attempt import ActiveAttempt, attempt_ended_event, claim_lost_event
from peerd.work.attempts.outcome_writer import OutcomeWriter
from peerd.work.claims.active_claims import ActiveClaims


class PendingOutcomes:
    """The attempts of one process that have ended, until their outcomes are written.

    Args:
        database: where they are written.
        process_id: who held the tasks.
        active_claims: what is held until then.
        outages: what it learns about the database.
        events: how they ended.
        running: how many attempts run; see `OutcomeWriter`.
        written: called with those that are not held any more.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        process_id: int,
        active_claims: ActiveClaims,
        outages: OutageTracker,
        events: EventBus,
        *,
        running: Callable[[], int],
        written: Callable[[Sequence[ActiveAttempt]], None],
    ) -> None:
        self._active_claims = active_claims
        self._events = events
        self._written = written
        self._writer = OutcomeWriter[ActiveAttempt](
            database,
            process_id,
            outages,
            running=running,
            written=self._on_written,
            unwritable=self._on_unwritable,
        )
        self._count = 0
        self._all_written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return self._count

    def add(self, attempt: ActiveAttempt) -> None:
        """Write an attempt's outcome soon."""
        self._count += 1
        self._writer.add(attempt)

    async def wait_until_written(self) -> None:
        """Wait until nothing is left to be written."""
        while self._count:
            self._all_written.clear()
            await self._all_written.wait()

    def taint(self, attempt: ActiveAttempt, error: Exception) -> None:
        """What must not happen has happened: a task was run and nothing can be said about it.

        Giving it back would let it run, and end so, again and again. So this process still holds it, and is tainted:
        when it has ended, the attempt counts as a crash, which is contained as every other one.
        """
        self._report_error(f"the outcome of task {attempt.task.id} could not be written", error)

    def _on_written(self, batch: Sequence[ActiveAttempt], refused: AbstractSet[ClaimId]) -> None:
        """Outcomes are committed, or were refused because the tasks are not held any more."""
        self._active_claims.drop([attempt.held for attempt in batch])
        if refused or self._events.has_listeners(AttemptEnded):
            self._emit_ended(batch, refused)
        self._remove_written(batch)

    def _emit_ended(self, batch: Sequence[ActiveAttempt], refused: AbstractSet[ClaimId]) -> None:
        for attempt in batch:
            try:
                if refused and attempt.held in refused:
                    self._events.emit(claim_lost_event(attempt.task, "outcome"))
                else:
                    self._events.emit(attempt_ended_event(attempt.task, attempt.outcome, attempt.seconds))
            except Exception as error:  # noqa: BLE001 - who hears of one must not keep the others from being heard of
                self._report_error(f"what follows the outcome of task {attempt.task.id} failed", error)

    def _on_unwritable(self, attempt: ActiveAttempt, error: Exception) -> None:
        """The database refuses these very values: what is written instead is that the attempt failed for it."""
        if attempt.execution is None or attempt.is_unwritable:
            self.taint(attempt, error)
            self._remove_written([attempt])
            return
        attempt.is_unwritable = True
        text = f"its outcome could not be written: {describe_exception(error)}"
        attempt.outcome = Failed(error=text, retry_in=attempt.execution.delay())
        self._writer.add(attempt)

    def _remove_written(self, batch: Sequence[ActiveAttempt]) -> None:
        self._count -= len(batch)
        if not self._count:
            self._all_written.set()
        self._written(batch)

    def _report_error(self, message: str, error: Exception) -> None:
        """The process is tainted by it."""
        self._loop.call_exception_handler({"message": message, "exception": error})
