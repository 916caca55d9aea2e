"""In the agent: sleeps until the next task falls due, lets it arrive at that moment, and rings.

When it is due, the database says; between two looks only spans are measured here. Of all nodes the first one that is
active does it; the others step in when it has not, a quarter of a second later. What is enqueued to fall due sooner
than what is known is rung (`TaskScheduled`); what raw SQL has written is found by a look now and then, and by the
chores.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from peerd.domain.backoff import Backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.ring import TasksAvailable, TaskScheduled, tasks_available_in
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.store.connection.database import DatabaseThreads
from peerd.store.maintenance.staging import NextDue, find_next_due, stage_all_due
from peerd.store.tasks.rows import BATCH

CHECK_EVERY: Final = 10.0
"""Seconds between two looks at the most."""
TAKE_OVER_AFTER: Final = 0.25
"""Seconds that a task is due when other nodes than the first one let it arrive."""
TIMER_MARGIN: Final = 0.001
"""Seconds after the moment at which it is looked at: SQLite tells milliseconds."""
MIN_PAUSE: Final = 0.01
"""Seconds between two looks at the least: many rings of what falls due soon cost no more."""
FRUITLESS_CHECKS: Final = (20, 5.0)
"""Looks after which nothing has arrived: so many at once, and so many a second; a ring need not be true."""


class DueTaskStager:
    """Lets tasks arrive as they fall due.

    Args:
        threads: of the database.
        node_id: this node's.
        ring: rings at all nodes, this one included.
        cluster_clock: it learns at each look what time it is.
    """

    def __init__(
        self,
        threads: DatabaseThreads,
        node_id: int,
        ring: Callable[[TasksAvailable], None],
        cluster_clock: ClusterClock,
    ) -> None:
        self._threads = threads
        self._node_id = node_id
        self._ring = ring
        self._time = cluster_clock
        self._wake_at = 0.0
        self._clock_pair: tuple[float, datetime] | None = None
        """The event loop's clock, and the database's at the same moment."""
        self._earlier_due = asyncio.Event()
        self._fruitless_checks = TokenBucket(*FRUITLESS_CHECKS)

    def receive(self, due: TaskScheduled) -> None:
        """Hear that a task falls due."""
        now = asyncio.get_running_loop().time()
        moments = [now + due.within] if due.within is not None else []
        if due.at is not None and self._clock_pair is not None:
            loop_time, database_time = self._clock_pair
            moments.append(loop_time + due.at - database_time.timestamp())
        if moments and min(moments) < self._wake_at:
            self._wake_at = min(moments) + TIMER_MARGIN
            self._earlier_due.set()

    async def run(self) -> None:
        """Look, sleep and let arrive, until cancelled."""
        pauses = Backoff(first=1.0)
        while True:
            try:
                await self._step()
                pauses.reset()
            except DatabaseUnavailable:  # the heartbeat says so
                await asyncio.sleep(pauses.next())
            await asyncio.sleep(max(MIN_PAUSE, self._fruitless_checks.take(self._now())))

    async def _step(self) -> None:
        self._wake_at = self._now() + CHECK_EVERY  # what is rung from here on may make it sooner
        ahead = await self._read_ahead()
        overdue = 0.0 if ahead.next_at is None else (ahead.now - ahead.next_at).total_seconds()
        if ahead.next_at is not None and overdue >= 0 and self._is_responsible(ahead, overdue):
            await self._stage_due()
            return
        if ahead.next_at is not None:
            pause = -overdue + TIMER_MARGIN + (0.0 if ahead.first_node == self._node_id else TAKE_OVER_AFTER)
            self._wake_at = min(self._wake_at, self._now() + max(pause, MIN_PAUSE))
        await self._sleep()

    async def _read_ahead(self) -> NextDue:
        began, asked_at = self._now(), self._time.steady()
        ahead = await self._threads.read(find_next_due)
        self._time.synchronize(ahead.now, asked_at)
        self._clock_pair = ((began + self._now()) / 2, ahead.now)
        return ahead

    def _is_responsible(self, ahead: NextDue, overdue: float) -> bool:
        return ahead.first_node in (self._node_id, None) or overdue >= TAKE_OVER_AFTER

    async def _stage_due(self) -> None:
        staged = await self._threads.run(stage_all_due, BATCH)
        if staged.count:
            self._fruitless_checks.fill()
            self._ring(tasks_available_in(staged.queues))
        else:
            await asyncio.sleep(random.uniform(MIN_PAUSE, 2 * MIN_PAUSE))  # another node was faster, or holds the rows

    async def _sleep(self) -> None:
        """Until what is known falls due, or somebody says that something does sooner."""
        while (remaining := self._wake_at - self._now()) > 0:
            self._earlier_due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._earlier_due.wait()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
