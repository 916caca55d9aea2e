"""Rings for the events of a process that mean work: sooner than a poll would find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peerd.domain.ring import Ring, TasksAvailable, TaskScheduled
from peerd.runtime.observability.events import (
    DEBUG_EVENTS,
    AttemptEnded,
    ChoreRan,
    Event,
    LimitedTaskEnded,
    ReservationsReleased,
    ScheduleRunEnded,
    TasksRescued,
    UnknownClaimReleased,
)

RINGS_BY_CHORE: Final[dict[str, Ring]] = {
    "stage scheduled": TasksAvailable(),
    "stage failures": TasksAvailable(),
    "pinned": TasksAvailable(),
    "postpone": TaskScheduled(within=0.0),
}
"""By the chore's name."""


class DoorbellEventListener:
    """Calls `ring` for each event that means work; for `EventBus.listen`.

    >>> rung = []
    >>> listener = DoorbellEventListener(rung.append)
    >>> listener(ChoreRan(chore="stage scheduled", count=3))
    >>> listener(ChoreRan(chore="purge done", count=3))
    >>> rung
    [TasksAvailable(queues=())]
    """

    def __init__(self, ring: Callable[[Ring], object]) -> None:
        self._ring = ring

    def accepts(self, kind: type[Event]) -> bool:
        """Whether events of a type can mean work."""
        return kind not in DEBUG_EVENTS

    def __call__(self, event: Event) -> None:
        """Ring, if the event means work."""
        match event:
            case AttemptEnded(outcome="done"):
                return
            case AttemptEnded(outcome="released"):
                self._ring(TasksAvailable((event.queue,)))
            case AttemptEnded() if event.retry_in is not None:
                self._ring(TaskScheduled(within=max(event.retry_in, 0.0)))
            case LimitedTaskEnded() | ScheduleRunEnded(queue=str()):  # a schedule's run has enqueued its task
                self._ring(TasksAvailable((str(event.queue),)))
            case UnknownClaimReleased() | ReservationsReleased():
                self._ring(TasksAvailable())
            case TasksRescued():  # each is pending again, or a failure that is due at once
                self._ring(TaskScheduled(within=0.0))
                self._ring(TasksAvailable())
            case ChoreRan():
                if (ring := RINGS_BY_CHORE.get(event.chore)) is not None:
                    self._ring(ring)
