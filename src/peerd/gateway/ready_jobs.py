"""Jobs that become ready: they are offered to waiting clients of this process, and all other processes are rung."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from peerd.domain.lifecycle import Status
from peerd.domain.ring import Ring, TaskScheduled, tasks_available_in
from peerd.gateway.due_jobs import DueJobs
from peerd.gateway.group_commit import Callback, OperationFailed, OperationQueue
from peerd.gateway.operations import StoreCall
from peerd.gateway.waiting import Offers, QueueClient, Waiters
from peerd.store import jobs

KICK_PART: Final = 100
"""Jobs that one transaction kicks at the most: all other clients wait for it."""


class ReadyJobs:
    """The jobs that have become ready, and the clients that wait for them.

    Args:
        operations: of the process.
        ring: rings at all nodes of the cluster.
        follow_table: whether this process stages the due jobs of the whole table.
    """

    def __init__(self, operations: OperationQueue, ring: Callable[[Ring], None], *, follow_table: bool) -> None:
        self.waiters = Waiters()
        self.offers = Offers(self.waiters)
        self._operations = operations
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._made_ready: Counter[str] = Counter()
        """Jobs that the present batch has made ready, by tube."""
        self._announcements: dict[str, asyncio.TimerHandle] = {}
        """Of tubes whose pause ends."""
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
        self.offers.add(self._operations.open_batch, client, tube, jobs, is_certain=is_certain)
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

        def executed(part: jobs.KickedPart | OperationFailed) -> None:
            if isinstance(part, OperationFailed):
                callback(part)
                return
            self.add(tube, part.kicked)
            if part.kicked == wanted < left:
                self._kick_part(client, tube, left - wanted, kicked + wanted, part.statuses, callback)
            else:
                callback(kicked + part.kicked)

        self._operations.submit(client, StoreCall(jobs.kick_part, (tube, wanted, statuses)), executed)
        self.offer(client, tube, wanted)

    def kick_job(self, client: QueueClient, job_id: int, callback: Callback) -> None:
        """Make a buried or delayed job ready; the result is its queue, or None."""
        self._operations.submit(
            client, StoreCall(jobs.kick_job, (job_id,)), partial(self._kicked_job, client, callback)
        )

    def _kicked_job(self, client: QueueClient, callback: Callback, queue: str | OperationFailed | None) -> None:
        if isinstance(queue, str):
            self.add(queue)
            self.offer(client, queue)
        callback(queue)

    # ---------------------------------------------------------------- jobs of any process

    def on_ring(self, queues: Sequence[str]) -> None:
        """Let waiting clients attempt: jobs may be ready in these queues, or in any if none is named."""
        for queue in queues:
            self.waiters.wake(queue)
        if not queues:
            self.waiters.wake_all()
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
