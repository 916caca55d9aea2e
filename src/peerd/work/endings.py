"""What has ended and is not written yet: held, and touched, until its outcome is committed or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from peerd.domain.outcome import Failed
from peerd.domain.task import Task
from peerd.runtime.events import Events
from peerd.runtime.faults import words
from peerd.store.database import DatabaseThreads
from peerd.store.outages import Outages
from peerd.work.attempt import Attempt, attempt_ended, claim_lost
from peerd.work.holdings import Holdings
from peerd.work.outcomes import OutcomeWriter


class Endings:
    """The attempts of one process that have ended, until their outcomes are written.

    Args:
        database: where they are written.
        process_id: who held the tasks.
        holdings: what is held until then.
        outages: what it learns about the database.
        events: how they ended.
        running: how many attempts run; see `OutcomeWriter`.
        written: called with each that is not held any more.
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
        written: Callable[[Task], None],
    ) -> None:
        self._holdings = holdings
        self._events = events
        self._written = written
        self._writer = OutcomeWriter(database, process_id, outages, running)
        self._unwritten: set[Attempt] = set()
        self._all_written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._unwritten)

    def add(self, attempt: Attempt) -> None:
        """Write an attempt's outcome soon."""
        self._unwritten.add(attempt)
        self._writer.add(attempt)

    async def wait_until_written(self) -> None:
        """Wait until nothing is left to be written."""
        while self._unwritten:
            self._all_written.clear()
            await self._all_written.wait()

    def written(self, attempt: Attempt, accepted: bool) -> None:  # noqa: FBT001 - a callback
        """An outcome is committed, or was refused because the task is not held any more."""
        if accepted:
            self._events.emit(attempt_ended(attempt.task, attempt.outcome, attempt.seconds))
        else:
            self._events.emit(claim_lost(attempt.task, "outcome"))
        self._holdings.drop(attempt.held)
        self._forget(attempt)

    def unwritable(self, attempt: Attempt, error: Exception) -> None:
        """The database refuses these very values: what is written instead is that the attempt failed for it."""
        if attempt.execution is None or attempt.is_unwritable:
            self.taint(attempt, error)
            self._forget(attempt)
            return
        attempt.is_unwritable = True
        text = f"its outcome could not be written: {words(error)}"
        attempt.outcome = Failed(error=text, retry_in=attempt.execution.delay())
        self._writer.add(attempt)

    def taint(self, attempt: Attempt, error: Exception) -> None:
        """What must not happen has happened: a task was run and nothing can be said about it.

        Giving it back would let it run, and end so, again and again. So this process still holds it, and is tainted:
        when it has ended, the attempt counts as a crash, which is contained as every other one.
        """
        message = f"the outcome of task {attempt.task.id} could not be written"
        self._loop.call_exception_handler({"message": message, "exception": error})

    def _forget(self, attempt: Attempt) -> None:
        self._unwritten.discard(attempt)
        if not self._unwritten:
            self._all_written.set()
        self._written(attempt.task)
