"""Announces jobs that are ready, or will be: to waiting clients of this process, and by rings to all others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from peerd.domain.ring import Ring, TaskScheduled, tasks_available_in
from peerd.gateway.due_jobs import DueJobs
from peerd.gateway.operation_queue import OperationQueue
from peerd.gateway.reserving import Reserving


class ReadyJobs:
    """The jobs that have become ready.

    Args:
        operations: of the process.
        ring: rings at all nodes of the cluster.
        follow_table: whether this process stages the due jobs of the whole table.
    """

    def __init__(self, operations: OperationQueue, ring: Callable[[Ring], None], *, follow_table: bool) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._made_ready: Counter[str] = Counter()
        """Jobs that the present batch has made ready, by tube."""
        self._announcements: dict[str, asyncio.TimerHandle] = {}
        """Of tubes whose pause ends."""
        self._due = DueJobs(
            lambda call, answer: operations.submit(self, call, answer), self.announce, follow_table=follow_table
        )

    def start(self, reserving: Reserving) -> None:
        """Wake the clients of these reserves from now on."""
        self._reserving = reserving

    def close(self) -> None:
        """Stage no more jobs."""
        self._due.close()
        for later in self._announcements.values():
            later.cancel()

    def add(self, tube: str, jobs: int = 1) -> None:
        """Count jobs that a batch has made ready; the operation has offered them to waiting clients already."""
        self._made_ready[tube] += jobs

    def expect(self, seconds: float) -> None:
        """A job becomes ready in so many seconds."""
        self._due.expect(seconds)
        self._ring(TaskScheduled(within=seconds))

    def ring_for_others(self) -> None:
        """Ring for the jobs of a batch that no client of this process has got."""
        if self._made_ready:
            tubes = [tube for tube, number in self._made_ready.items() if number > self._reserving.granted[tube]]
            self._made_ready.clear()
            if tubes:
                self._ring(tasks_available_in(tubes))

    def announce(self, tubes: Sequence[str]) -> None:
        """Any number of jobs may be ready in these tubes."""
        self.on_ring(tubes)
        self._ring(tasks_available_in(tubes))

    def announce_in(self, seconds: float, tube: str) -> None:
        """The same for a tube after some seconds, instead of what was to come for it."""
        if earlier := self._announcements.pop(tube, None):
            earlier.cancel()
        self._announcements[tube] = self._loop.call_later(seconds, self._announce_later, tube)

    def _announce_later(self, tube: str) -> None:
        del self._announcements[tube]
        self.announce((tube,))

    def on_ring(self, queues: Sequence[str]) -> None:
        """Let waiting clients attempt: jobs may be ready in these queues, or in any if none is named."""
        for queue in queues:
            self._reserving.wake(queue, float("inf"))
        if not queues:
            self._reserving.wake_all()
