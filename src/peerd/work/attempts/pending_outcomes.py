"""What has ended and is not written yet: held, and touched, until its outcome is committed or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from peerd.domain.outcome import Failed
from peerd.runtime.observability.events import AttemptEnded, Events
from peerd.runtime.process.uncaught_exceptions import words
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import Outages
from peerd.store.outcomes.recording import Held
from peerd.work.attempts.active_attempt import Attempt, attempt_ended, claim_lost
from peerd.work.attempts.outcome_writer import OutcomeWriter
from peerd.work.claims.active_claims import Holdings


class Endings:
    """The attempts of one process that have ended, until their outcomes are written.

    Args:
        database: where they are written.
        process_id: who held the tasks.
        holdings: what is held until then.
        outages: what it learns about the database.
        events: how they ended.
        running: how many attempts run; see `OutcomeWriter`.
        written: called with those that are not held any more.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        process_id: int,
        holdings: Holdings,
        outages: Outages,
        events: Events,
        *,
        running: Callable[[], int],
        written: Callable[[Sequence[Attempt]], None],
    ) -> None:
        self._holdings = holdings
        self._events = events
        self._written = written
        self._writer = OutcomeWriter[Attempt](
            database,
            process_id,
            outages,
            running=running,
            written=self._forget,
            unwritable=self._write_failure,
        )
        self._count = 0
        self._all_written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return self._count

    def add(self, attempt: Attempt) -> None:
        """Write an attempt's outcome soon."""
        self._count += 1
        self._writer.add(attempt)

    async def wait_until_written(self) -> None:
        """Wait until nothing is left to be written."""
        while self._count:
            self._all_written.clear()
            await self._all_written.wait()

    def taint(self, attempt: Attempt, error: Exception) -> None:
        """What must not happen has happened: a task was run and nothing can be said about it.

        Giving it back would let it run, and end so, again and again. So this process still holds it, and is tainted:
        when it has ended, the attempt counts as a crash, which is contained as every other one.
        """
        self._report(f"the outcome of task {attempt.task.id} could not be written", error)

    def _forget(self, batch: Sequence[Attempt], refused: AbstractSet[Held]) -> None:
        """Outcomes are committed, or were refused because the tasks are not held any more."""
        self._holdings.drop([attempt.held for attempt in batch])
        if refused or self._events.are_heard(AttemptEnded):
            self._say_all(batch, refused)
        self._subtract(batch)

    def _say_all(self, batch: Sequence[Attempt], refused: AbstractSet[Held]) -> None:
        for attempt in batch:
            try:
                if refused and attempt.held in refused:
                    self._events.emit(claim_lost(attempt.task, "outcome"))
                else:
                    self._events.emit(attempt_ended(attempt.task, attempt.outcome, attempt.seconds))
            except Exception as error:  # noqa: BLE001 - who hears of one must not keep the others from being heard of
                self._report(f"what follows the outcome of task {attempt.task.id} failed", error)

    def _write_failure(self, attempt: Attempt, error: Exception) -> None:
        """The database refuses these very values: what is written instead is that the attempt failed for it."""
        if attempt.execution is None or attempt.is_unwritable:
            self.taint(attempt, error)
            self._subtract([attempt])
            return
        attempt.is_unwritable = True
        text = f"its outcome could not be written: {words(error)}"
        attempt.outcome = Failed(error=text, retry_in=attempt.execution.delay())
        self._writer.add(attempt)

    def _subtract(self, batch: Sequence[Attempt]) -> None:
        self._count -= len(batch)
        if not self._count:
            self._all_written.set()
        self._written(batch)

    def _report(self, message: str, error: Exception) -> None:
        """The process is tainted by it."""
        self._loop.call_exception_handler({"message": message, "exception": error})
