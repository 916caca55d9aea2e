"""In the agent: sleeps until the next task falls due, lets it arrive at that moment, and rings.

When it is due, the database says; between two looks only spans are measured here. Of all nodes the first one that is
active does it; the others step in when it has not, a quarter of a second later. What is enqueued to fall due sooner
than what is known is rung (`Due`); what raw SQL has written is found by a look now and then, and by the chores.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from peerd.domain.errors import DatabaseAway
from peerd.domain.ring import Due, Work, work_in
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import Backoff
from peerd.store.maintenance.staging import Ahead, arrive, look_ahead
from peerd.store.tasks.rows import BATCH

LOOK_EVERY: Final = 10.0
"""Seconds between two looks at the most."""
STEP_IN_AFTER: Final = 0.25
"""Seconds that a task is due when other nodes than the first one let it arrive."""
A_MOMENT: Final = 0.001
"""Seconds after the moment at which it is looked at: SQLite tells milliseconds."""
REST: Final = 0.01
"""Seconds between two looks at the least: many rings of what falls due soon cost no more."""
LOOKS_IN_VAIN: Final = (20, 5.0)
"""Looks after which nothing has arrived: so many at once, and so many a second; a ring need not be true."""


class DueTimer:
    """Lets tasks arrive as they fall due.

    Args:
        threads: of the database.
        node_id: this node's.
        ring: rings at all nodes, this one included.
        time_of_cluster: it learns at each look what time it is.
    """

    def __init__(
        self, threads: DatabaseThreads, node_id: int, ring: Callable[[Work], None], time_of_cluster: ClusterClock
    ) -> None:
        self._threads = threads
        self._node_id = node_id
        self._ring = ring
        self._time = time_of_cluster
        self._wake_at = 0.0
        self._clock: tuple[float, datetime] | None = None
        """The event loop's clock, and the database's at the same moment."""
        self._sooner = asyncio.Event()
        self._looks = TokenBucket(*LOOKS_IN_VAIN)

    def hear(self, due: Due) -> None:
        """Hear that a task falls due."""
        now = asyncio.get_running_loop().time()
        moments = [now + due.within] if due.within is not None else []
        if due.at is not None and self._clock is not None:
            here, there = self._clock
            moments.append(here + due.at - there.timestamp())
        if moments and min(moments) < self._wake_at:
            self._wake_at = min(moments) + A_MOMENT
            self._sooner.set()

    async def run(self) -> None:
        """Look, sleep and let arrive, until cancelled."""
        pauses = Backoff(first=1.0)
        while True:
            try:
                await self._step()
                pauses.reset()
            except DatabaseAway:  # the heartbeat says so
                await asyncio.sleep(pauses.next())
            await asyncio.sleep(max(REST, self._looks.take(self._now())))

    async def _step(self) -> None:
        self._wake_at = self._now() + LOOK_EVERY  # what is rung from here on may make it sooner
        ahead = await self._look()
        overdue = 0.0 if ahead.next_at is None else (ahead.now - ahead.next_at).total_seconds()
        if ahead.next_at is not None and overdue >= 0 and self._is_mine(ahead, overdue):
            await self._let_arrive()
            return
        if ahead.next_at is not None:
            pause = -overdue + A_MOMENT + (0.0 if ahead.first_node == self._node_id else STEP_IN_AFTER)
            self._wake_at = min(self._wake_at, self._now() + max(pause, REST))
        await self._sleep()

    async def _look(self) -> Ahead:
        began, asked_at = self._now(), self._time.steady()
        ahead = await self._threads.read(look_ahead)
        self._time.heard(ahead.now, asked_at)
        self._clock = ((began + self._now()) / 2, ahead.now)
        return ahead

    def _is_mine(self, ahead: Ahead, overdue: float) -> bool:
        return ahead.first_node in (self._node_id, None) or overdue >= STEP_IN_AFTER

    async def _let_arrive(self) -> None:
        arrived = await self._threads.run(arrive, BATCH)
        if arrived.count:
            self._looks.fill()
            self._ring(work_in(arrived.queues))
        else:
            await asyncio.sleep(random.uniform(REST, 2 * REST))  # another node was faster, or holds the rows

    async def _sleep(self) -> None:
        """Until what is known falls due, or somebody says that something does sooner."""
        while (rest := self._wake_at - self._now()) > 0:
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._sooner.wait()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
