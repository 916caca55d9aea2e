"""Delayed jobs become ready at the moment when they are due: a timer for each job that this process has delayed.

The stager of the agent does the same for the whole table; a job that another process has delayed is rung for. A process
without an agent (`peerd-beanstalkd`) follows the whole table itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from sqlalchemy.engine import Connection

from peerd.gateway.batches import OperationFailed
from peerd.gateway.operations import StoreCall
from peerd.store.maintenance.chore_batches import stage_all_due
from peerd.store.maintenance.due import find_next_due
from peerd.store.tasks.rows import BATCH

TIMER_MARGIN: Final = 0.001
"""Seconds from the due time to the check: SQLite's clock has milliseconds."""
MAX_TIMES: Final = 10_000
"""Due times that are kept; the stager finds the jobs of later ones."""
RETRY_AFTER: Final = 1.0
"""Seconds until the next check after one that the database did not answer."""
CHECK_EVERY: Final = 10.0
"""Seconds between two checks of a process that follows the whole table, at the most."""


class StagedJobs(NamedTuple):
    """What has become ready, and when to check again."""

    queues: tuple[str, ...]
    is_full: bool
    """More jobs may be due."""
    next_in: float | None
    """Seconds until the next job is due."""


def stage_due_jobs(connection: Connection) -> StagedJobs:
    """Make due jobs ready, a batch of them."""
    staged = stage_all_due(connection, BATCH)
    due = find_next_due(connection)
    seconds = None if due.next_at is None else (due.next_at - due.now).total_seconds()
    return StagedJobs(staged.queues, staged.count >= BATCH, seconds)


class DueJobs:
    """The due times of delayed jobs.

    Args:
        submit: has an operation executed.
        on_ready: called with the queues in which jobs have become ready.
        follow_table: whether this process stages the jobs of all others too.
    """

    def __init__(
        self,
        submit: Callable[[StoreCall, Callable[[StagedJobs | OperationFailed], None]], None],
        on_ready: Callable[[tuple[str, ...]], None],
        *,
        follow_table: bool,
    ) -> None:
        self._submit = submit
        self._on_ready = on_ready
        self._follow_table = follow_table
        self._loop = asyncio.get_running_loop()
        self._times: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_checking = False
        if follow_table:
            self.expect(0.0)

    def expect(self, seconds: float) -> None:
        """Check after so many seconds, when a job is due."""
        if len(self._times) >= MAX_TIMES:
            return
        at = self._loop.time() + seconds + TIMER_MARGIN
        is_first = not self._times or at < self._times[0]
        heappush(self._times, at)
        if is_first and not self._is_checking:
            self._set_timer()

    def close(self) -> None:
        """Check no more."""
        self._times.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._times[0], self._check) if self._times else None

    def _check(self) -> None:
        now = self._loop.time()
        while self._times and self._times[0] <= now:
            heappop(self._times)
        self._is_checking = True
        self._submit(StoreCall(stage_due_jobs), self._checked)

    def _checked(self, result: StagedJobs | OperationFailed) -> None:
        self._is_checking = False
        if isinstance(result, OperationFailed):
            self.expect(RETRY_AFTER)
        else:
            if result.queues:
                self._on_ready(result.queues)
            if result.is_full:
                self.expect(0.0)
            elif self._follow_table:
                self.expect(CHECK_EVERY if result.next_in is None else min(max(result.next_in, 0.0), CHECK_EVERY))
        self._set_timer()
