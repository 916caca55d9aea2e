"""Claims of tasks for the free slots of a process, with pauses that grow while there is nothing to do.

A quarantined task, one that has crashed a process, runs alone: only a process that runs nothing claims it, from lanes
of their own, and then claims nothing else. An idle process checks these lanes whenever it finds nothing else, a busy
one now and then. When such a task has waited for long and it is a busy process's turn
(`peerd.store.take.quarantined`), that process drains for it, and then takes one after another while it is its turn;
the others go on, so a crash does not cost the cluster all its slots. A process per quarantined task, as
``process=True`` starts one, would need less state here, but cannot run every task: a coroutine, a `TaskWorker` and
what uses ``ctx.process`` need the worker's own process.

Tasks that count for a limit are claimed apart; `LimitedPolling` says when.

After an empty poll the process first reads what is claimable, in one statement that writes nothing, and claims what it
finds. After a ring it claims at once and reads if that found nothing, because the read takes as long as the claim;
except on SQLite, where an empty claim takes the only writer's lock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from peerd.domain.errors import DatabaseUnavailable, RowLocked
from peerd.domain.pacing import exponential_backoff
from peerd.domain.task import Task
from peerd.runtime.observability.events import EventBus, TasksClaimed
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import ClaimId
from peerd.store.statements import new_token
from peerd.store.take.backlog import ClaimableWork, find_claimable
from peerd.store.take.claimer import Claimer, ClaimMutex, ClaimResult
from peerd.store.take.claiming import LimitedClaim, claim, claim_limited, claimed_by_token
from peerd.store.take.quarantined import should_empty_for_quarantined
from peerd.work.active_claims import ActiveClaims

CHECK_EVERY: Final = 0.03
"""Seconds between two checks while there is something else to claim: less than the first pause of an idle process."""
MAX_CHECK_PAUSE: Final = 0.5
"""Longest time between two checks, in seconds, after checks that found no task for a limited claim."""
CHECK_AFTER_RING: Final = 0.1
"""Seconds from such a check until the next one, when the doorbell rings."""
FIRST_RETRY_PAUSE: Final = 0.05
"""Seconds from a limited claim that brought nothing until the next one; doubled at each further one."""


class LimitedPolling:
    """When to make a limited claim: which queue, whether before plain claims, and when to retry one without a task.

    Tasks that have a limit key or are in a limited queue are claimed apart from all others
    (`peerd.store.take.turns`). A backlog check says which queues have such tasks, and of what priority. It is
    made when there is nothing else to claim, and now and then while there is; so a process whose queues have neither
    keys nor limits has one statement more in many. Checking before every claim would need no state here, and a
    statement each.

    `max_pause` returns the seconds at the most between two limited claims that bring nothing.
    """

    def __init__(self, now: Callable[[], float], max_pause: Callable[[], float]) -> None:
        self._now = now
        self._max_pause = max_pause
        self._queue_ranks: dict[str, int] = {}
        self._next_check = 0.0
        self._checked_at = -MAX_CHECK_PAUSE
        self._check_pause = CHECK_EVERY
        self._has_changed = False
        self._misses: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._served: dict[str, int] = {}
        self._claims_so_far = 0
        self._unlimited_rank: int | None = None
        self._unlimited_was_last = False

    @property
    def check_is_due(self) -> bool:
        return self._now() >= self._next_check

    def begin_check(self) -> None:
        """A backlog check begins; it may not see changes from here on."""
        self._has_changed = False

    def record_backlog(self, ranks: Mapping[str, int]) -> None:
        """Take the result of a backlog check: the best rank of each queue that has tasks for a limited claim."""
        self._queue_ranks = dict(ranks)
        self._check_pause = CHECK_EVERY if ranks else min(2 * self._check_pause, MAX_CHECK_PAUSE)
        self._checked_at = self._now()
        self._next_check = self._checked_at + self._check_pause
        for queue in set(self._not_before) - set(ranks):
            del self._not_before[queue]
            self._misses.pop(queue, None)
        if self._has_changed:
            self._check_soon()

    def record_unlimited_claim(self, rank: int) -> None:
        """A plain claim brought tasks; the rank of the first."""
        self._unlimited_rank = rank
        self._unlimited_was_last = True

    def next_queue(self, *, before_unlimited: bool) -> str | None:
        """The queue of the next limited claim; of two of the same priority, the one that was served longer ago.

        With `before_unlimited` only if it comes before the plain claims: its first task has a higher priority than the
        latest of those, or the same one and a plain claim was the last.
        """
        now = self._now()
        free = [
            (rank, self._served.get(queue, 0), queue)
            for queue, rank in self._queue_ranks.items()
            if self._not_before.get(queue, now) <= now
        ]
        if not free:
            return None
        rank, _, queue = min(free)
        if before_unlimited and self._unlimited_rank is not None:
            is_later = rank > self._unlimited_rank or (rank == self._unlimited_rank and not self._unlimited_was_last)
            return None if is_later else queue
        return queue

    def record_claim(self, queue: str, requested: int, won: int, again_in: float | None) -> None:
        """A limited claim was made. `again_in` is the time in seconds until a rate lets a task start."""
        self._unlimited_was_last = False
        if won < requested:
            self._queue_ranks.pop(queue, None)
        if won:
            self._claims_so_far += 1
            self._served[queue] = self._claims_so_far
            self._misses.pop(queue, None)
            self._not_before.pop(queue, None)
            return
        number = self._misses[queue] = self._misses.get(queue, 0) + 1
        pause = exponential_backoff(number, base=FIRST_RETRY_PAUSE, maximum=self._max_pause(), jitter=0.0)
        if again_in is not None:
            pause = min(pause, max(again_in, 0.0))
        self._not_before[queue] = self._now() + pause

    def on_capacity_change(self) -> None:
        """The doorbell rang, or a task has ended: a limited claim may bring tasks again."""
        soon = self._now() + FIRST_RETRY_PAUSE
        for queue, moment in self._not_before.items():
            self._not_before[queue] = min(moment, soon)
        self._misses.clear()
        self._has_changed = True
        self._check_soon()

    def _check_soon(self) -> None:
        """At once where limited claims have found something; in a moment where not."""
        rest = 0.0 if self._queue_ranks or self._not_before else CHECK_AFTER_RING
        self._next_check = min(self._next_check, self._checked_at + rest)

    def pause(self) -> float | None:
        """Seconds until a limited claim that brought nothing is retried; None where there was none.

        Where the backlog of a queue is not known, not before the next check.
        """
        if not self._not_before:
            return None
        retry_at = (
            moment if queue in self._queue_ranks else max(moment, self._next_check)
            for queue, moment in self._not_before.items()
        )
        return max(min(retry_at) - self._now(), 0.0)


# ---------------------------------------------------------------- claims


QUARANTINE_CHECK_EVERY: Final = 1.0
"""Seconds between two checks for quarantined tasks."""
QUARANTINE_PATIENCE: Final = 10.0
"""Seconds that a quarantined task waits before the first process drains for it."""
FIRST_PAUSE: Final = 0.05
"""Seconds after the first empty poll; doubled at each further one."""


class TaskFetcher:
    """Fetches the tasks of one process. `poll_every` returns the seconds between two polls at the most."""

    def __init__(
        self,
        database: DatabaseThreads,
        claimer: Claimer,
        active_claims: ActiveClaims,
        outages: OutageTracker,
        events: EventBus,
        *,
        poll_every: Callable[[], float],
    ) -> None:
        self._database = database
        self._claimer = claimer
        self._active_claims = active_claims
        self._outages = outages
        self._events = events
        self._poll_every = poll_every
        self._now = asyncio.get_running_loop().time
        self._mutex = ClaimMutex(self._now)
        self._next_quarantine_check = 0.0
        self._drains_for_quarantine = False
        self._found_quarantined = False
        """Whether the last claim of a quarantined task brought one."""
        self._ran_quarantined = False
        """Whether one was claimed since it was last asked whether the next one is this process's turn."""
        self._is_busy = False
        """Whether the last poll found something to claim."""
        self._empty_polls = 0
        self._limited_polling = LimitedPolling(self._now, poll_every)
        self._backlog = ClaimableWork()
        self._limited_queues: set[str] = set()
        self._has_claimed_limited = False
        self._yields_to_limited = False
        """Whether a limited claim comes first and waits for a free slot."""
        self._has_free_slot = True
        self._was_rung = False

    def on_ended(self, ended: Iterable[Task]) -> set[str]:
        """Tasks are not held any more. Returns the queues in which others may start that they counted against."""
        if not self._has_claimed_limited:
            return set()
        freed = {task.queue for task in ended if task.limit_key is not None or task.queue in self._limited_queues}
        if freed:
            self._limited_polling.on_capacity_change()
        return freed

    def on_ring(self) -> None:
        self._was_rung = not self._database.database.is_single_writer
        self._limited_polling.on_capacity_change()

    async def claim(self, wanted: int, running: int, free: int) -> list[Task]:
        """Claim `wanted` tasks at the most, for free slots and to prefetch, while so many are `running`.

        Tasks that count for a limit are not prefetched: at the most as many as slots are `free` are claimed of them.
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
        """Seconds until the next poll, spread so that processes do not poll together."""
        if self._drains_for_quarantine:
            return max(self._next_quarantine_check - self._now(), FIRST_PAUSE)
        if self._is_busy or not self._empty_polls:
            return 0.0
        longest = self._poll_every()
        grown = exponential_backoff(self._empty_polls, base=FIRST_PAUSE, maximum=longest, jitter=0.25)
        retry_in = self._limited_polling.pause() if self._has_free_slot else None  # a slot that is freed wakes it
        return grown if retry_in is None else min(grown, retry_in)

    async def _claim_next(self, wanted: int, free: int) -> ClaimResult:
        """Claim what comes first, by a limited claim or a plain one.

        Where a limited claim comes first and no slot is free for it, nothing is claimed until one is. A process that
        always prefetches would otherwise never have a free one.
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
        won = await self._claim(wanted, quarantined=False)
        if won.tasks:
            self._limited_polling.record_unlimited_claim(-won.tasks[0].priority)
        return won

    async def _check_backlog(self) -> bool:
        """Read what is claimable; return whether the database answered."""
        self._limited_polling.begin_check()
        try:
            self._backlog = await self._database.read(find_claimable, self._claimer)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            return False
        self._limited_polling.record_backlog(self._backlog.limited)
        self._outages.found()
        return True

    async def _poll_limited(self, free: int, *, before_unlimited: bool) -> list[Task]:
        """Make a limited claim where something waits for one, and further ones as long as they bring nothing."""
        while free > 0 and (queue := self._limited_polling.next_queue(before_unlimited=before_unlimited)) is not None:
            claimed = await self._claim_limited(queue, free, quarantined=False)
            self._limited_polling.record_claim(queue, free, len(claimed.tasks), claimed.again_in)
            if claimed.tasks:
                return claimed.tasks
        return []

    async def _claim_limited(self, queue: str, limit: int, *, quarantined: bool) -> LimitedClaim:
        again_in: float | None = None

        async def send(token: int) -> ClaimResult:
            nonlocal again_in
            claimed = await self._database.run(
                claim_limited, self._claimer, queue, token=token, limit=limit, quarantined=quarantined
            )
            again_in = claimed.again_in
            return ClaimResult(claimed.tasks)

        won = (await self._claim_and_hold(send)).tasks
        self._has_claimed_limited |= bool(won)
        self._limited_queues |= {queue for task in won if task.limit_key is None}
        return LimitedClaim(won, again_in)

    def _quarantine_check_is_due(self) -> bool:
        return self._now() >= self._next_quarantine_check

    async def _should_drain(self) -> bool:
        """Whether this process, which has other tasks, is to drain for a quarantined one."""
        self._schedule_quarantine_check()
        self._ran_quarantined = False
        try:
            return await self._database.read(should_empty_for_quarantined, self._claimer, QUARANTINE_PATIENCE)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            return self._drains_for_quarantine

    async def _claim_quarantined(self) -> list[Task]:
        """Claim a quarantined task for a process that runs nothing."""
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
        return await self._claim_and_hold(
            lambda token: self._database.run_short(
                claim, self._claimer, token=token, limit=limit, quarantined=quarantined, mutex=self._mutex
            )
        )

    async def _claim_and_hold(self, send: Callable[[int], Awaitable[ClaimResult]]) -> ClaimResult:
        """Send a claim, and hold what it wins."""
        token = new_token()
        began = self._now()
        self._active_claims.begin_claim(token)
        won = ClaimResult([])
        try:
            won = await self._claim_once(token, send)
        finally:
            self._active_claims.end_claim(token, [ClaimId(task.id, task.lease) for task in won.tasks])
        if won.tasks:
            self._events.emit(TasksClaimed(count=len(won.tasks), milliseconds=(self._now() - began) * 1000))
        return won

    async def _claim_once(self, token: int, send: Callable[[int], Awaitable[ClaimResult]]) -> ClaimResult:
        """Claim once. If the answer is lost, read by the token what was won, before anything else is claimed."""
        try:
            won = await send(token)
        except DatabaseUnavailable as error:
            self._outages.lost(error)
        except RowLocked:
            pass  # a part of the claim may be committed
        else:
            self._outages.found()
            return won
        read = partial(self._database.read, claimed_by_token, self._claimer, token)
        return ClaimResult(await self._outages.retry_while_down(read))
