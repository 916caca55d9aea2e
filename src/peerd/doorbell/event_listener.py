"""Rings for the events of a process that mean work: sooner than a poll would find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from peerd.domain.ring import MAX_TASKS, ClaimRevoked, Ring, TasksAvailable, TaskScheduled, tasks_available_in
from peerd.domain.task import QUEUE_NAME
from peerd.runtime.observability.events import (
    DEBUG_EVENTS,
    AttemptEnded,
    BulkChunkDone,
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
            case BulkChunkDone():
                list(map(self._ring, rings_of_chunk(event)))
            case ChoreRan() if event.chore in RINGS_BY_CHORE:
                self._ring(RINGS_BY_CHORE[event.chore])


def rings_of_chunk(event: BulkChunkDone) -> Iterator[Ring]:
    """What a chunk of a bulk action means for others.

    >>> done = {"bulk_id": 1, "action": "retry", "rows": 3}
    >>> list(rings_of_chunk(BulkChunkDone(**done, queues=("video",), revoked=(7,))))
    [ClaimRevoked(tasks=(7,)), TasksAvailable(queues=('video',))]
    """
    for first in range(0, len(event.revoked), MAX_TASKS):
        yield ClaimRevoked(event.revoked[first : first + MAX_TASKS])
    if event.queues:
        yield tasks_available_in(filter(QUEUE_NAME.fullmatch, event.queues))  # SQL by hand may have others
