"""Makes scheduled and failed tasks pending at the moment when they fall due, and rings for them.

The database's clock decides what is due; here only spans between two checks are measured. The first of the active nodes
stages a due task; if it has not after a quarter of a second, the others do. A task that is enqueued to fall due earlier
than the next known one is rung (`TaskScheduled`); one written by raw SQL is found by a check every ten seconds, and by
the chores.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.pacing import Backoff, TokenBucket
from peerd.domain.ring import TasksAvailable, TaskScheduled, tasks_available_in
from peerd.doorbell.datagram import ClusterClock
from peerd.store.chore_batches import stage_all_due
from peerd.store.connection.database import DatabaseThreads
from peerd.store.due import NextDue, find_agent_work
from peerd.store.tasks.rows import BATCH

CHECK_EVERY: Final = 10.0
"""Longest time between two checks, in seconds."""
TAKE_OVER_AFTER: Final = 0.25
"""Seconds that a task is due before other nodes than the first one stage it."""
TIMER_MARGIN: Final = 0.001
"""Seconds from the due time to the check: SQLite's clock has milliseconds."""
MIN_PAUSE: Final = 0.01
"""Shortest time between two checks, in seconds, however many rings come."""
FRUITLESS_CHECKS: Final = (20, 5.0)
"""Checks that may find nothing, at once and in a second: a ring need not be true."""


@dataclass(eq=False)
class DueTaskStager:
    """Stages tasks as they fall due.

    Args:
        node_id: this node's.
        ring: rings at all nodes, this one included.
        cluster_clock: synchronized at each check.
        incarnation: of this node.
        on_check: called with what each check has read.
    """

    threads: DatabaseThreads
    node_id: int
    ring: Callable[[TasksAvailable], None]
    cluster_clock: ClusterClock
    incarnation: str
    on_check: Callable[[NextDue], object]

    def __post_init__(self) -> None:
        self._wake_at = 0.0
        # the event loop's time, and the database's at the same moment
        self._clock_pair: tuple[float, datetime] | None = None
        self._earlier_due = asyncio.Event()
        self._fruitless_checks = TokenBucket(*FRUITLESS_CHECKS)

    def receive(self, due: TaskScheduled) -> None:
        """Check earlier, if a task falls due before the next check."""
        times = [_now() + due.within] if due.within is not None else []
        if due.at is not None and self._clock_pair is not None:
            loop_time, database_time = self._clock_pair
            times.append(loop_time + due.at - database_time.timestamp())
        if times and min(times) < self._wake_at:
            self._wake_at = min(times) + TIMER_MARGIN
            self._earlier_due.set()

    async def run(self) -> None:
        pauses = Backoff(first=1.0)
        while True:
            try:
                await self._step()
                pauses.reset()
            except DatabaseUnavailable:  # the heartbeat reports it
                await asyncio.sleep(pauses.next())
            await asyncio.sleep(max(MIN_PAUSE, self._fruitless_checks.take(_now())))

    async def _step(self) -> None:
        began, asked_at = _now(), self.cluster_clock.steady()
        self._wake_at = began + CHECK_EVERY  # a ring from here on may make it earlier
        found = await self.threads.read(find_agent_work, self.incarnation)
        self.on_check(found)
        self.cluster_clock.synchronize(found.now, asked_at)
        self._clock_pair = ((began + _now()) / 2, found.now)
        if found.next_at is not None:
            is_first = found.first_node in (self.node_id, None)
            overdue = (found.now - found.next_at).total_seconds()
            if overdue >= 0 and (is_first or overdue >= TAKE_OVER_AFTER):
                await self._stage_due()
                return
            pause = -overdue + TIMER_MARGIN + (0.0 if found.first_node == self.node_id else TAKE_OVER_AFTER)
            self._wake_at = min(self._wake_at, _now() + max(pause, MIN_PAUSE))
        await self._wait_for_next_check()

    async def _stage_due(self) -> None:
        staged = await self.threads.run(stage_all_due, BATCH)
        if staged.count:
            self._fruitless_checks.fill()
            self.ring(tasks_available_in(staged.queues))
        else:
            await asyncio.sleep(random.uniform(MIN_PAUSE, 2 * MIN_PAUSE))  # another node was faster, or locks the rows

    async def _wait_for_next_check(self) -> None:
        """Sleep until the next check, or until a ring makes it earlier."""
        while (remaining := self._wake_at - _now()) > 0:
            self._earlier_due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._earlier_due.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
