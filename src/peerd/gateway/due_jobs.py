"""Delayed jobs become ready when they are due: a timer for the first job that this process has delayed.

Each check of the table tells when the next job is due. The stager of the agent does the same for the whole table; a job
that another process has delayed is rung for. A process without an agent (`peerd-beanstalkd`) follows the whole table
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy.engine import Connection

from peerd.gateway.group_commit import OperationFailed
from peerd.gateway.operations import StoreCall
from peerd.gateway.waiting import FOREVER
from peerd.store.maintenance.chore_batches import stage_all_due
from peerd.store.maintenance.due import find_next_due
from peerd.store.tasks.rows import BATCH

TIMER_MARGIN: Final = 0.001
"""Seconds from the due time to the check: SQLite's clock has milliseconds."""
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
    """A timer for the next delayed job that is due.

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
        self._next_at = FOREVER
        """When to check, by the event loop's clock."""
        self._latest = 0.0
        """The due time of the last job that this process has delayed; the table knows those in between."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_checking = self._is_closed = False
        if follow_table:
            self.expect(0.0)

    def expect(self, seconds: float) -> None:
        """Check after so many seconds, when a job is due."""
        at = self._loop.time() + seconds + TIMER_MARGIN
        self._latest = max(self._latest, at)
        self._check_at(at)

    def close(self) -> None:
        """Check no more."""
        self._is_closed = True
        self._set_timer(FOREVER)

    def _check_at(self, at: float) -> None:
        if at < self._next_at:
            self._next_at = at
            if not self._is_checking:
                self._set_timer(at)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._check) if at < FOREVER and not self._is_closed else None

    def _check(self) -> None:
        self._next_at = FOREVER
        self._is_checking = True
        self._submit(StoreCall(stage_due_jobs), self._checked)

    def _checked(self, result: StagedJobs | OperationFailed) -> None:
        self._is_checking = False
        self._check_at(self._loop.time() + self._seconds_to_next(result))
        self._set_timer(self._next_at)
        if isinstance(result, StagedJobs) and result.queues:
            self._on_ready(result.queues)

    def _seconds_to_next(self, result: StagedJobs | OperationFailed) -> float:
        """Seconds until a check that the result of the last one asks for."""
        if isinstance(result, OperationFailed):
            return RETRY_AFTER
        if result.is_full:
            return 0.0
        if result.next_in is None:
            next_in = FOREVER
        elif result.next_in > 0 or result.queues:
            next_in = max(result.next_in, 0.0) + TIMER_MARGIN
        else:
            next_in = RETRY_AFTER  # due, and not staged: its row is locked
        if self._follow_table:
            return min(next_in, CHECK_EVERY)
        return next_in if self._loop.time() + next_in <= self._latest + TIMER_MARGIN else FOREVER
