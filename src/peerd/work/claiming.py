"""Claiming: as many tasks as there are free places, with pauses that grow while there is nothing to do.

A task that has crashed a process runs alone, so that its neighbours are not killed with it again: it is claimed only
by a process that runs nothing, which then claims nothing else. Such tasks stand in lanes of their own. A process that
finds nothing else to do looks into them. So does, now and then, one that always has something to do, and when one has
waited for long it lets itself run empty for it, if it is its turn (`peerd.store.alone`); having done so it takes one
after another, as long as it is its turn. The others go on meanwhile: a crash does not cost the cluster all its places.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from peerd.domain.errors import DatabaseAway
from peerd.domain.task import Task
from peerd.runtime.events import Events, TasksClaimed
from peerd.store.alone import should_run_empty
from peerd.store.claim import Claimed, Claimer, claim, claimed_by_token, new_token
from peerd.store.database import DatabaseThreads
from peerd.store.finish import Held
from peerd.store.outages import Outages
from peerd.work.holdings import Holdings

LOOK_FOR_LONELY_EVERY: Final = 1.0
"""Seconds between two looks for tasks that must run alone."""
FIRST_PAUSE: Final = 0.05
"""Seconds after the first empty look; doubled at each further one."""


class Claiming:
    """The claims of one process.

    Args:
        database: where.
        claimer: who, and which queues.
        holdings: what was won is entered there before anything else can happen.
        outages: what it learns about the database.
        events: how many were claimed.
        poll_every: asked for the seconds between two looks at the most.
        patience: seconds after which the first process runs empty for a task that must run alone.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        claimer: Claimer,
        holdings: Holdings,
        outages: Outages,
        events: Events,
        *,
        poll_every: Callable[[], float],
        patience: float = 10.0,
    ) -> None:
        self._database = database
        self._claimer = claimer
        self._holdings = holdings
        self._outages = outages
        self._events = events
        self._poll_every = poll_every
        self._patience = patience
        self._now = asyncio.get_running_loop().time
        self._look_further = 0
        self._next_lonely_look = 0.0
        self._runs_empty = False
        self._found_lonely = False
        self._ran_alone = False
        self._is_busy = False
        self._empty_looks = 0

    async def claim(self, free: int, running: int) -> list[Task]:
        """Claim for the free places.

        Args:
            free: places.
            running: tasks that run.
        """
        if self._ran_alone or (self._look_is_due() and (running or self._is_busy)):
            self._runs_empty = await self._is_its_turn()
        if self._runs_empty:
            return [] if running else await self._claim_alone()
        won = await self._claim(free, alone=False)
        self._is_busy = bool(won.tasks) or won.contended
        self._empty_looks = 0 if self._is_busy else self._empty_looks + 1
        if not (running or self._is_busy) and (self._found_lonely or self._look_is_due()):
            return await self._claim_alone()
        self._look_further = min(self._look_further * 2 + free, 64) if won.contended else 0
        return won.tasks

    def pause(self) -> float:
        """Seconds until the next look. Spread, so that processes do not look together."""
        if self._runs_empty:
            return max(self._next_lonely_look - self._now(), FIRST_PAUSE)
        if not self._empty_looks:
            return 0.0
        grown = min(FIRST_PAUSE * 2.0 ** min(self._empty_looks - 1, 16), self._poll_every())
        return grown * random.uniform(0.75, 1.25)

    def _look_is_due(self) -> bool:
        """Whether it is time to look again for tasks that must run alone."""
        return self._now() >= self._next_lonely_look

    async def _is_its_turn(self) -> bool:
        """Whether this process, which has other things to do, is to run empty for a task that must run alone."""
        self._look_later()
        self._ran_alone = False
        try:
            return await self._database.read(should_run_empty, self._claimer, self._patience)
        except DatabaseAway as error:
            self._outages.lost(error)
            return self._runs_empty

    async def _claim_alone(self) -> list[Task]:
        """Claim a task that must run alone, for a process that runs nothing."""
        self._look_later()
        self._runs_empty = False
        lonely = (await self._claim(1, alone=True)).tasks
        self._found_lonely = self._ran_alone = bool(lonely)
        self._empty_looks = 0 if lonely else self._empty_looks
        return lonely

    def _look_later(self) -> None:
        self._next_lonely_look = self._now() + LOOK_FOR_LONELY_EVERY * random.uniform(0.5, 1.5)

    async def _claim(self, limit: int, *, alone: bool) -> Claimed:
        token = new_token()
        began = self._now()
        self._holdings.begin_claim(token)
        won = Claimed([])
        try:
            won = await self._once(token, limit, alone=alone)
        finally:
            self._holdings.end_claim(token, [Held(task.id, task.lease) for task in won.tasks])
        if won.tasks:
            spent = (self._now() - began) * 1000
            self._events.emit(TasksClaimed(count=len(won.tasks), milliseconds=spent))
        return won

    async def _once(self, token: int, limit: int, *, alone: bool) -> Claimed:
        """One claim; when its answer is lost, read back by its token what it won before anything else is tried."""
        further = self._look_further
        try:
            won = await self._database.run_each(
                claim, self._claimer, token=token, limit=limit, alone=alone, look_further=further
            )
        except DatabaseAway as error:
            self._outages.lost(error)
            found = await self._outages.outlast(lambda: self._database.read(claimed_by_token, self._claimer, token))
            return Claimed(found)
        self._outages.found()
        return won
