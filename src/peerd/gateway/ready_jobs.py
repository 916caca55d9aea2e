"""Jobs that become ready: they are offered to waiting clients of this process, and all other processes are rung.

Delayed jobs become ready when they are due: a timer waits for the first job that this process has delayed. Each check
of the table tells when the next job is due. The stager of the agent does the same for the whole table; a job that
another process has delayed is rung for. A process without an agent (`peerd-beanstalkd`) follows the whole table itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.ring import Ring, TaskScheduled, tasks_available_in
from peerd.gateway.group_commit import Callback, OperationFailed, OperationQueue
from peerd.gateway.operations import StoreCall
from peerd.gateway.waiting import FOREVER, QueueClient, Waiters
from peerd.store.chore_batches import stage_all_due
from peerd.store.due import find_next_due
from peerd.store.jobs.free import KickedPart, kick_job, kick_part
from peerd.store.tasks.rows import BATCH

TIMER_MARGIN: Final = 0.001
"""Seconds from the due time to the check: SQLite's clock has milliseconds."""
RETRY_AFTER: Final = 1.0
"""Seconds until the next check after one that the database did not answer."""
CHECK_EVERY: Final = 10.0
"""Seconds between two checks of a process that follows the whole table, at the most."""
KICK_PART: Final = 100
"""Jobs that one transaction kicks at the most: all other clients wait for it."""


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


# ---------------------------------------------------------------- ready jobs


class ReadyJobs:
    """The jobs that have become ready, and the clients that wait for them.

    Args:
        operations: of the process.
        ring: rings at all nodes of the cluster.
        follow_table: whether this process stages the due jobs of the whole table.
    """

    def __init__(self, operations: OperationQueue, ring: Callable[[Ring], None], *, follow_table: bool) -> None:
        self.waiters = Waiters()
        self._operations = operations
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._made_ready: Counter[str] = Counter()
        """Jobs that the present batch has made ready, by tube."""
        self._announcements: dict[str, asyncio.TimerHandle] = {}
        """Timers of tubes whose pause ends."""
        self._due = DueJobs(
            lambda call, callback: operations.submit(self, call, callback), self.announce, follow_table=follow_table
        )

    def close(self) -> None:
        """Stage no more jobs."""
        self._due.close()
        for later in self._announcements.values():
            later.cancel()

    # ---------------------------------------------------------------- jobs of this process

    def offer(self, client: object, tube: str, jobs: int = 1, *, is_certain: bool = False) -> None:
        """Let waiting clients attempt directly after the operations so far of a client: they may make jobs ready."""
        self.waiters.offer(self._operations.open_batch, client, tube, jobs, is_certain=is_certain)
        self._operations.request_batch()

    def add(self, tube: str, jobs: int = 1) -> None:
        """Count jobs that a batch has made ready; the operation has offered them to waiting clients already."""
        self._made_ready[tube] += jobs

    def expect(self, seconds: float) -> None:
        """A job becomes ready in so many seconds."""
        self._due.expect(seconds)
        self._ring(TaskScheduled(within=seconds))

    def ring_for_others(self, granted: Mapping[str, int]) -> None:
        """Ring for the jobs that a batch has made ready beyond those that clients of this process have got."""
        if self._made_ready:
            tubes = [tube for tube, number in self._made_ready.items() if number > granted.get(tube, 0)]
            self._made_ready.clear()
            if tubes:
                self._ring(tasks_available_in(tubes))

    def kick(self, client: QueueClient, tube: str, bound: int, callback: Callback) -> None:
        """Make buried jobs of a tube ready, or delayed ones if none is buried; the result is how many.

        A large kick is done in parts, between which other clients have their turn.
        """
        self._kick_part(client, tube, bound, 0, None, callback)

    def _kick_part(
        self,
        client: QueueClient,
        tube: str,
        left: int,
        kicked: int,
        statuses: tuple[Status, ...] | None,
        callback: Callback,
    ) -> None:
        wanted = min(left, KICK_PART)

        def executed(part: KickedPart | OperationFailed) -> None:
            if isinstance(part, OperationFailed):
                callback(part)
                return
            self.add(tube, part.kicked)
            if part.kicked == wanted < left:
                self._kick_part(client, tube, left - wanted, kicked + wanted, part.statuses, callback)
            else:
                callback(kicked + part.kicked)

        self._operations.submit(client, StoreCall(kick_part, (tube, wanted, statuses)), executed)
        self.offer(client, tube, wanted)

    def kick_job(self, client: QueueClient, job_id: int, callback: Callback) -> None:
        """Make a buried or delayed job ready; the result is its queue, or None."""
        self._operations.submit(client, StoreCall(kick_job, (job_id,)), partial(self._kicked_job, client, callback))

    def _kicked_job(self, client: QueueClient, callback: Callback, queue: str | OperationFailed | None) -> None:
        if isinstance(queue, str):
            self.add(queue)
            self.offer(client, queue)
        callback(queue)

    # ---------------------------------------------------------------- jobs of any process

    def on_ring(self, queues: Sequence[str]) -> None:
        """Let waiting clients attempt: jobs may be ready in these queues, or in any if none is named."""
        self.waiters.wake_all(queues)
        self._operations.request_batch()

    def announce(self, tubes: Sequence[str]) -> None:
        """Any number of jobs may be ready in these tubes."""
        self.on_ring(tubes)
        self._ring(tasks_available_in(tubes))

    def announce_in(self, seconds: float, tube: str) -> None:
        """Announce a tube after some seconds, instead of what was to come for it."""
        if earlier := self._announcements.pop(tube, None):
            earlier.cancel()
        self._announcements[tube] = self._loop.call_later(seconds, self._announce_later, tube)

    def _announce_later(self, tube: str) -> None:
        del self._announcements[tube]
        self.announce((tube,))
