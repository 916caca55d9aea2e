"""When a worker process polls, and when it makes a limited claim."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from peerd.config.settings import WorkSettings
from peerd.domain.pacing import exponential_backoff
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_ups import RingReceiver
from peerd.runtime.process.process_context import ProcessContext

SECOND_POLL_AFTER: Final = 0.1
"""Seconds between the poll that a ring causes and a second one, where a server may lag behind another."""
CHECK_EVERY: Final = 0.03
"""Seconds between two checks while there is something else to claim: less than the first pause of an idle process."""
MAX_CHECK_PAUSE: Final = 0.5
"""The same at the most, after checks that found no task for a limited claim."""
CHECK_AFTER_RING: Final = 0.1
"""Seconds from such a check until the next one, when the doorbell rings."""
FIRST_RETRY_PAUSE: Final = 0.05
"""Seconds from a limited claim that brought nothing until the next one; doubled at each further one."""


class RungPolling:
    """Has a process poll at once after a ring, and less often while the doorbell works.

    Args:
        process: gets the rings.
        settings: its queues, and how often it polls.
        poll: makes it poll.
        check_claims: makes it check its claims of these tasks.
        may_lag: whether the server that is read may lack for a moment what another one has committed.
    """

    def __init__(
        self,
        process: ProcessContext,
        settings: WorkSettings,
        poll: Callable[[], None],
        check_claims: Callable[[frozenset[int]], Awaitable[None]],
        *,
        may_lag: bool = True,
    ) -> None:
        self._poll = poll
        self._check_claims = check_claims
        self._settings = settings
        self._queues = frozenset(settings.queues)
        self._may_lag = may_lag
        self._second_poll: asyncio.TimerHandle | None = None
        self.rings = RingReceiver(process, self._on_ring, self._on_status)

    def poll_every(self) -> float:
        """Seconds between two polls at the most."""
        every = self._settings.poll_every
        return max(every, self._settings.rung_poll_every) if self.rings.doorbell_works else every

    def _on_status(self, works: bool) -> None:  # noqa: FBT001 - called with what it is
        if not works:
            self._poll()  # its pause may be a long one

    def _on_ring(self, ring: Ring) -> Awaitable[None] | None:
        match ring:
            case TasksAvailable(queues) if not queues or not self._queues.isdisjoint(queues):
                self._poll_for_ring()
            case ClaimRevoked(tasks):
                return self._check_claims(frozenset(tasks))
        return None

    def _poll_for_ring(self) -> None:
        self._poll()
        if self._may_lag and self._second_poll is None:
            self._second_poll = asyncio.get_running_loop().call_later(SECOND_POLL_AFTER, self._poll_again)

    def _poll_again(self) -> None:
        self._second_poll = None
        self._poll()


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
