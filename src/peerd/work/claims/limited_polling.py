"""When to claim by turns: what waits for it, whether it goes before all else, and when one was in vain.

What has a key, and what is in a limited queue, is claimed apart from all other tasks
(`peerd.store.limits.limited_claim`). A look says which queues have such tasks, and of what priority. It is taken when
there is nothing else, and now and then while there is; so a process whose queues know neither keys nor limits has one
statement more in many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from peerd.domain.backoff import exponential_backoff

CHECK_EVERY: Final = 0.03
"""Seconds between two looks while there is something else to do: within the time in which a free place finds work, and
sooner than the first pause of a process that has found nothing ends."""
MAX_CHECK_PAUSE: Final = 0.5
"""The same at the most, after looks that found nothing that takes turns."""
CHECK_AFTER_RING: Final = 0.1
"""Seconds between two such looks, when somebody rings."""
FIRST_RETRY_PAUSE: Final = 0.05
"""Seconds after a turn that brought nothing, until the next one; doubled at each further one."""


class LimitedPolling:
    """Of one process.

    Args:
        now: the event loop's clock.
        longest_pause: asked for the seconds between two turns in vain, at the most.
    """

    def __init__(self, now: Callable[[], float], longest_pause: Callable[[], float]) -> None:
        self._now = now
        self._max_pause = longest_pause
        self._queue_ranks: dict[str, int] = {}
        self._next_look = 0.0
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
        """Whether it is time to look what waits."""
        return self._now() >= self._next_look

    def checks_backlog(self) -> None:
        """A look begins; what changes from here on it may not see."""
        self._has_changed = False

    def record_backlog(self, ranks: Mapping[str, int]) -> None:
        """What a look has found: the best rank of each queue in which something waits for its turn."""
        self._queue_ranks = dict(ranks)
        self._check_pause = CHECK_EVERY if ranks else min(2 * self._check_pause, MAX_CHECK_PAUSE)
        self._checked_at = self._now()
        self._next_look = self._checked_at + self._check_pause
        for queue in set(self._not_before) - set(ranks):
            del self._not_before[queue]
            self._misses.pop(queue, None)
        if self._has_changed:
            self._look_soon()

    def record_unlimited_claim(self, rank: int) -> None:
        """Tasks that take no turns were claimed; the rank of the first."""
        self._unlimited_rank = rank
        self._unlimited_was_last = True

    def next_queue(self, *, before_unlimited: bool) -> str | None:
        """The queue of which a turn is to be taken now; of two of the same priority, the one that has waited longer.

        Args:
            before_unlimited: only if it goes before all that takes no turns: its first task has a higher priority than
                the
                latest of those, or the same one and they went last.
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
        return None if before_unlimited and self._comes_after_unlimited(rank) else queue

    def _comes_after_unlimited(self, rank: int) -> bool:
        if self._unlimited_rank is None:
            return False
        return rank > self._unlimited_rank or (rank == self._unlimited_rank and not self._unlimited_was_last)

    def record_claim(self, queue: str, requested: int, won: int, again_in: float | None) -> None:
        """A turn was taken.

        Args:
            queue: of which.
            requested: tasks at the most.
            won: tasks that it brought.
            again_in: seconds until a rate lets something start.
        """
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
        """Somebody rang, or a task of ours has ended: a turn need not be in vain any more."""
        soon = self._now() + FIRST_RETRY_PAUSE
        for queue, moment in self._not_before.items():
            self._not_before[queue] = min(moment, soon)
        self._misses.clear()
        self._has_changed = True
        self._look_soon()

    def _look_soon(self) -> None:
        """At once where something takes turns; in a moment where nothing did."""
        rest = 0.0 if self._queue_ranks or self._not_before else CHECK_AFTER_RING
        self._next_look = min(self._next_look, self._checked_at + rest)

    def pause(self) -> float | None:
        """Seconds until a turn that was in vain is tried again; None where there was none."""
        if not self._not_before:
            return None
        moments = (self._retry_at(queue, moment) for queue, moment in self._not_before.items())
        return max(min(moments) - self._now(), 0.0)

    def _retry_at(self, queue: str, not_before: float) -> float:
        """When a turn can be taken: where it is not known what waits, not before the next look."""
        return not_before if queue in self._queue_ranks else max(not_before, self._next_look)
