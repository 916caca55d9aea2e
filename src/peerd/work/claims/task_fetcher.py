"""Claiming: as many tasks as there are free places, with pauses that grow while there is nothing to do.

A task that has crashed a process runs alone, so that its neighbours are not killed with it again: it is claimed only
by a process that runs nothing, which then claims nothing else. Such tasks stand in lanes of their own. A process that
finds nothing else to do looks into them. So does, now and then, one that always has something to do, and when one has
waited for long it lets itself run empty for it, if it is its turn (`peerd.store.claim.quarantined`); having done so it
takes one after another, as long as it is its turn. The others go on meanwhile: a crash does not cost the cluster all
its places.

Tasks that have keys, or whose queue is limited, are claimed by turns: see `peerd.work.claims.limited_polling`.

Who has claimed nothing for a moment looks first, by one question that writes nothing, and claims only what it sees. Who
is rung at, and knows of nothing that takes turns, claims at once, and looks if that was in vain: the look would take as
long as the claim. In vain a claim is as cheap, except on SQLite, where it takes the only writer's lock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from peerd.domain.backoff import exponential_backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.task import Task
from peerd.runtime.observability.events import EventBus, TasksClaimed
from peerd.store.claim.claim import claim, claimed_by_token
from peerd.store.claim.claimer import Claimer, ClaimResult
from peerd.store.claim.mutex import ClaimMutex
from peerd.store.claim.quarantined import should_empty_for_quarantined
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.limits.limited_claim import ClaimableWork, LimitedClaim, claim_limited, find_claimable
from peerd.store.outcomes.recording import ClaimId
from peerd.store.statements.token import new_token
from peerd.work.claims.active_claims import ActiveClaims
from peerd.work.claims.limited_polling import LimitedPolling

QUARANTINE_CHECK_EVERY: Final = 1.0
"""Seconds between two looks for tasks that must run alone."""
FIRST_PAUSE: Final = 0.05
"""Seconds after the first empty look; doubled at each further one."""


class TaskFetcher:
    """The claims of one process.

    Args:
        database: where.
        claimer: who, and which queues.
        active_claims: what was won is entered there before anything else can happen.
        outages: what it learns about the database.
        events: how many were claimed.
        poll_every: asked for the seconds between two looks at the most.
        patience: seconds after which the first process runs empty for a task that must run alone.
    """

    def __init__(
        self,
        database: DatabaseThreads,
        claimer: Claimer,
        active_claims: ActiveClaims,
        outages: OutageTracker,
        events: EventBus,
        *,
        poll_every: Callable[[], float],
        patience: float = 10.0,
    ) -> None:
        self._database = database
        self._claimer = claimer
        self._active_claims = active_claims
        self._outages = outages
        self._events = events
        self._poll_every = poll_every
        self._patience = patience
        self._now = asyncio.get_running_loop().time
        self._mutex = ClaimMutex(self._now)
        self._next_quarantine_check = 0.0
        self._drains_for_quarantine = False
        self._found_quarantined = False
        self._ran_quarantined = False
        self._is_busy = False
        self._empty_polls = 0
        self._limited_polling = LimitedPolling(self._now, poll_every)
        self._backlog = ClaimableWork()
        self._limited_queues: set[str] = set()
        self._has_claimed_limited = False
        self._yields_to_limited = False
        self._has_free_slot = True
        self._was_rung = False

    def queues_freed_by(self, ended: Iterable[Task]) -> set[str]:
        """The queues in which a task may start because one has ended that was claimed by turns."""
        if not self._has_claimed_limited:
            return set()
        return {task.queue for task in ended if task.limit_key is not None or task.queue in self._limited_queues}

    def on_capacity_change(self) -> None:
        """A task that takes turns has ended, and others may start."""
        self._limited_polling.on_capacity_change()

    def on_ring(self) -> None:
        """Somebody says that there is work."""
        self._was_rung = not self._database.database.is_single_writer
        self._limited_polling.on_capacity_change()

    async def claim(self, wanted: int, running: int, free: int) -> list[Task]:
        """Claim for the free places.

        Args:
            wanted: tasks: for the free places, and as many ahead as will begin at once.
            running: tasks that run.
            free: places; what takes turns is not claimed ahead.
        """
        if self._ran_quarantined or (self._quarantine_check_is_due() and (running or self._is_busy)):
            self._drains_for_quarantine = await self._should_drain()
        if self._drains_for_quarantine:
            return [] if running else await self._claim_quarantined()
        won = await self._claim_next(wanted, free)
        self._is_busy = bool(won.tasks) or won.lost_candidates
        if won.tasks:
            self._empty_polls = 0
        elif not self._is_busy:
            self._empty_polls += 1
        if not (running or self._is_busy) and (self._found_quarantined or self._quarantine_check_is_due()):
            return await self._claim_quarantined()
        return won.tasks

    def pause(self) -> float:
        """Seconds until the next look. Spread, so that processes do not look together."""
        if self._drains_for_quarantine:
            return max(self._next_quarantine_check - self._now(), FIRST_PAUSE)
        if self._is_busy or not self._empty_polls:
            return 0.0
        longest = self._poll_every()
        grown = exponential_backoff(self._empty_polls, base=FIRST_PAUSE, maximum=longest, jitter=0.25)
        turn_in = self._limited_polling.pause() if self._has_free_slot else None  # a place that is free again wakes it
        return grown if turn_in is None else min(grown, turn_in)

    async def _claim_next(self, wanted: int, free: int) -> ClaimResult:
        """Claim what comes first: by turns, or what takes none.

        Where a turn comes first and no place is free for it, nothing is claimed until one is. Who always claims ahead
        would otherwise never have a free one.
        """
        self._has_free_slot = free > 0
        claims_at_once = self._was_rung and not self._backlog.limited
        self._was_rung = False
        if claims_at_once and (won := await self._claim_unlimited(wanted)).tasks:
            return won
        may_find_plain = True
        if checks_backlog := claims_at_once or self._limited_polling.check_is_due or not self._is_busy:
            may_find_plain = not await self._check_backlog() or self._backlog.plain
        if checks_backlog or self._yields_to_limited:
            self._yields_to_limited = not free and self._limited_polling.next_queue(before_unlimited=True) is not None
            if self._yields_to_limited:
                return ClaimResult([])
            if limited := await self._poll_limited(free, before_unlimited=True):
                return ClaimResult(limited)
        won = await self._claim_unlimited(wanted) if may_find_plain else ClaimResult([])
        if won.tasks:
            return won
        if not checks_backlog:
            await self._check_backlog()
        return ClaimResult(await self._poll_limited(free, before_unlimited=False), lost_candidates=won.lost_candidates)

    async def _claim_unlimited(self, wanted: int) -> ClaimResult:
        """Claim what takes no turns."""
        won = await self._claim(wanted, quarantined=False)
        if won.tasks:
            self._limited_polling.record_unlimited_claim(-won.tasks[0].priority)
        return won

    async def _check_backlog(self) -> bool:
        """Look what waits; return whether the database has told."""
        self._limited_polling.checks_backlog()
        try:
            self._backlog = await self._database.read(find_claimable, self._claimer)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            return False
        self._limited_polling.record_backlog(self._backlog.limited)
        self._outages.found()
        return True

    async def _poll_limited(self, free: int, *, before_unlimited: bool) -> list[Task]:
        """Take a turn where something waits for one; further ones, as long as they are in vain."""
        while free > 0 and (queue := self._limited_polling.next_queue(before_unlimited=before_unlimited)) is not None:
            turn = await self._claim_limited(queue, free, quarantined=False)
            self._limited_polling.record_claim(queue, free, len(turn.tasks), turn.again_in)
            if turn.tasks:
                return turn.tasks
        return []

    async def _claim_limited(self, queue: str, limit: int, *, quarantined: bool) -> LimitedClaim:
        turn = LimitedClaim([])

        async def take(token: int) -> ClaimResult:
            nonlocal turn
            turn = await self._database.run(
                claim_limited, self._claimer, queue, token=token, limit=limit, quarantined=quarantined
            )
            return ClaimResult(turn.tasks)

        won = (await self._claim_and_hold(take)).tasks
        self._has_claimed_limited |= bool(won)
        self._limited_queues |= {queue for task in won if task.limit_key is None}
        return LimitedClaim(won, turn.again_in)

    def _quarantine_check_is_due(self) -> bool:
        """Whether it is time to look again for tasks that must run alone."""
        return self._now() >= self._next_quarantine_check

    async def _should_drain(self) -> bool:
        """Whether this process, which has other things to do, is to run empty for a task that must run alone."""
        self._schedule_quarantine_check()
        self._ran_quarantined = False
        try:
            return await self._database.read(should_empty_for_quarantined, self._claimer, self._patience)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            return self._drains_for_quarantine

    async def _claim_quarantined(self) -> list[Task]:
        """Claim a task that must run alone, for a process that runs nothing."""
        self._schedule_quarantine_check()
        self._drains_for_quarantine = False
        if self._limited_polling.check_is_due:
            await self._check_backlog()
        quarantined_tasks = (await self._claim(1, quarantined=True)).tasks if self._backlog.quarantined else []
        for queue in [] if quarantined_tasks else {**self._backlog.quarantined_limited, **self._backlog.quarantined}:
            if quarantined_tasks := (await self._claim_limited(queue, 1, quarantined=True)).tasks:
                break
        self._found_quarantined = self._ran_quarantined = bool(quarantined_tasks)
        self._empty_polls = 0 if quarantined_tasks else self._empty_polls
        return quarantined_tasks

    def _schedule_quarantine_check(self) -> None:
        self._next_quarantine_check = self._now() + QUARANTINE_CHECK_EVERY * random.uniform(0.5, 1.5)

    async def _claim(self, limit: int, *, quarantined: bool) -> ClaimResult:
        """One claim of what takes no turns."""
        return await self._claim_and_hold(
            lambda token: self._database.run_autocommit(
                claim, self._claimer, token=token, limit=limit, quarantined=quarantined, mutex=self._mutex
            )
        )

    async def _claim_and_hold(self, ask: Callable[[int], Awaitable[ClaimResult]]) -> ClaimResult:
        """Ask for a claim, and hold what it wins."""
        token = new_token()
        began = self._now()
        self._active_claims.begin_claim(token)
        won = ClaimResult([])
        try:
            won = await self._claim_once(token, ask)
        finally:
            self._active_claims.end_claim(token, [ClaimId(task.id, task.lease) for task in won.tasks])
        if won.tasks:
            spent = (self._now() - began) * 1000
            self._events.emit(TasksClaimed(count=len(won.tasks), milliseconds=spent))
        return won

    async def _claim_once(self, token: int, ask: Callable[[int], Awaitable[ClaimResult]]) -> ClaimResult:
        """One claim; when its answer is lost, read back by its token what it won before anything else is tried."""
        try:
            won = await ask(token)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            found = await self._outages.retry_while_down(
                lambda: self._database.read(claimed_by_token, self._claimer, token)
            )
            return ClaimResult(found)
        self._outages.found()
        return won
