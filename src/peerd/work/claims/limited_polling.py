"""When to claim by turns: what waits for it, whether it goes before all else, and when one was in vain.

What has a key, and what is in a limited queue, is claimed apart from all other tasks
(`peerd.store.limits.limited_claim`). A look says which queues have such tasks, and of what priority. It is taken when
there is nothing else, and now and then while there is; so a process whose queues know neither keys nor limits has one
statement more in many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

LOOK_EVERY: Final = 0.03
"""Seconds between two looks while there is something else to do: within the time in which a free place finds work, and
sooner than the first pause of a process that has found nothing ends."""
SELDOM: Final = 0.5
"""The same at the most, after looks that found nothing that takes turns."""
RUNG_LOOK: Final = 0.1
"""Seconds between two such looks, when somebody rings."""
SOONEST: Final = 0.05
"""Seconds after a turn that brought nothing, until the next one; doubled at each further one."""


class TurnTaking:
    """Of one process.

    Args:
        now: the event loop's clock.
        longest_pause: asked for the seconds between two turns in vain, at the most.
    """

    def __init__(self, now: Callable[[], float], longest_pause: Callable[[], float]) -> None:
        self._now = now
        self._longest_pause = longest_pause
        self._ranks: dict[str, int] = {}
        self._next_look = 0.0
        self._looked_at = -SELDOM
        self._span = LOOK_EVERY
        self._has_changed = False
        self._in_vain: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._served: dict[str, int] = {}
        self._turns_so_far = 0
        self._other_rank: int | None = None
        self._others_went_last = False

    @property
    def look_is_due(self) -> bool:
        """Whether it is time to look what waits."""
        return self._now() >= self._next_look

    def looks(self) -> None:
        """A look begins; what changes from here on it may not see."""
        self._has_changed = False

    def saw(self, ranks: Mapping[str, int]) -> None:
        """What a look has found: the best rank of each queue in which something waits for its turn."""
        self._ranks = dict(ranks)
        self._span = LOOK_EVERY if ranks else min(2 * self._span, SELDOM)
        self._looked_at = self._now()
        self._next_look = self._looked_at + self._span
        for queue in set(self._not_before) - set(ranks):
            del self._not_before[queue]
            self._in_vain.pop(queue, None)
        if self._has_changed:
            self._look_soon()

    def others_went(self, rank: int) -> None:
        """Tasks that take no turns were claimed; the rank of the first."""
        self._other_rank = rank
        self._others_went_last = True

    def next_queue(self, *, before_others: bool) -> str | None:
        """The queue of which a turn is to be taken now; of two of the same priority, the one that has waited longer.

        Args:
            before_others: only if it goes before all that takes no turns: its first task has a higher priority than the
                latest of those, or the same one and they went last.
        """
        now = self._now()
        free = [
            (rank, self._served.get(queue, 0), queue)
            for queue, rank in self._ranks.items()
            if self._not_before.get(queue, now) <= now
        ]
        if not free:
            return None
        rank, _, queue = min(free)
        return None if before_others and self._comes_after_others(rank) else queue

    def _comes_after_others(self, rank: int) -> bool:
        if self._other_rank is None:
            return False
        return rank > self._other_rank or (rank == self._other_rank and not self._others_went_last)

    def took(self, queue: str, asked: int, won: int, again_in: float | None) -> None:
        """A turn was taken.

        Args:
            queue: of which.
            asked: tasks at the most.
            won: tasks that it brought.
            again_in: seconds until a rate lets something start.
        """
        self._others_went_last = False
        if won < asked:
            self._ranks.pop(queue, None)
        if won:
            self._turns_so_far += 1
            self._served[queue] = self._turns_so_far
            self._in_vain.pop(queue, None)
            self._not_before.pop(queue, None)
            return
        number = self._in_vain[queue] = self._in_vain.get(queue, 0) + 1
        pause = min(SOONEST * 2.0 ** min(number - 1, 16), self._longest_pause())
        if again_in is not None:
            pause = min(pause, max(again_in, 0.0))
        self._not_before[queue] = self._now() + pause

    def may_have_changed(self) -> None:
        """Somebody rang, or a task of ours has ended: a turn need not be in vain any more."""
        soon = self._now() + SOONEST
        for queue, moment in self._not_before.items():
            self._not_before[queue] = min(moment, soon)
        self._in_vain.clear()
        self._has_changed = True
        self._look_soon()

    def _look_soon(self) -> None:
        """At once where something takes turns; in a moment where nothing did."""
        rest = 0.0 if self._ranks or self._not_before else RUNG_LOOK
        self._next_look = min(self._next_look, self._looked_at + rest)

    def pause(self) -> float | None:
        """Seconds until a turn that was in vain is tried again; None where there was none."""
        if not self._not_before:
            return None
        moments = (self._can_be_tried_at(queue, moment) for queue, moment in self._not_before.items())
        return max(min(moments) - self._now(), 0.0)

    def _can_be_tried_at(self, queue: str, not_before: float) -> float:
        """When a turn can be taken: where it is not known what waits, not before the next look."""
        return not_before if queue in self._ranks else max(not_before, self._next_look)
