"""What happens in a process, and rings: facts that mean that there is work sooner than a poll would find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peerd.domain.ring import Due, Ring, Work
from peerd.runtime.observability.events import (
    FINE,
    AttemptEnded,
    ChoreRan,
    Fact,
    ScheduleRunEnded,
    StrayReleased,
    TasksTakenBack,
    TurnEnded,
)

RINGS_OF_CHORES: Final[dict[str, Ring]] = {
    "arrive scheduled": Work(),
    "arrive failures": Work(),
    "pinned": Work(),
    "postpone": Due(within=0.0),
}
"""By the chore's name."""


class RingingFacts:
    """Reads events, and rings where one means work; for `Events.listen`.

    Args:
        ring: rings.

    >>> rung = []
    >>> reader = RingingFacts(rung.append)
    >>> reader(ChoreRan(chore="arrive scheduled", count=3))
    >>> reader(ChoreRan(chore="purge done", count=3))
    >>> rung
    [Work(queues=())]
    """

    def __init__(self, ring: Callable[[Ring], object]) -> None:
        self._ring = ring

    def hears(self, kind: type[Fact]) -> bool:
        """Whether facts of a kind can mean work."""
        return kind not in FINE

    def __call__(self, fact: Fact) -> None:
        """Ring, if it means work."""
        match fact:
            case AttemptEnded(outcome="done"):
                return
            case AttemptEnded(outcome="released"):
                self._ring(Work((fact.queue,)))
            case AttemptEnded() if fact.retry_in is not None:
                self._ring(Due(within=max(fact.retry_in, 0.0)))
            case TurnEnded():
                self._ring(Work((fact.queue,)))
            case StrayReleased():
                self._ring(Work())
            case TasksTakenBack():  # a failure that is due at once, or pending again
                self._ring(Due(within=0.0))
                self._ring(Work())
            case ScheduleRunEnded(queue=str(queue)):  # it has enqueued its task
                self._ring(Work((queue,)))
            case ChoreRan():
                if (ring := RINGS_OF_CHORES.get(fact.chore)) is not None:
                    self._ring(ring)
