"""A slot holds one process after another. Its states and events are the table TRANSITIONS.

It has no reference to a process and does not read the clock: `now` is passed in, seconds of a monotonic clock.

The state of a slot is the state of its current process. A tainted process that still works while its replacement starts
belongs to the slot, but the state is the replacement's; while a successor boots after a reload, the slot stays
RUNNING.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from peerd.supervision.plan import Kind


class SlotState(StrEnum):
    """State of a slot."""

    STARTING = "STARTING"  # its process has been started and is not ready yet
    RUNNING = "RUNNING"
    BACKOFF = "BACKOFF"  # it has no process, and gets one at `backoff_until` (immediately after a first failure)
    DRAINING = "DRAINING"  # its process has been asked to stop
    EXITED = "EXITED"  # its process has exited voluntarily with status 0, and is not replaced
    STOPPED = "STOPPED"  # not started yet, or stopped as requested


class SlotEvent(StrEnum):
    """Event of a slot."""

    START = "start"
    READY = "ready"
    FAIL = "fail"  # its process has died, could not be started, or is tainted
    RECYCLE = "recycle"  # its process has asked to be replaced
    REPLACED = "replaced"  # a successor, started beside its process, has become ready and has taken over
    LEAVE = "leave"  # its process has exited with status 0 voluntarily, after it was ready; before, that is a failure
    STOP = "stop"  # it shall have no process: the node stops, or has fewer slots
    END = "end"  # the process that was asked to stop has ended, with any status


TRANSITIONS: Final = {
    (SlotState.STOPPED, SlotEvent.START): SlotState.STARTING,
    (SlotState.STOPPED, SlotEvent.STOP): SlotState.STOPPED,
    (SlotState.STARTING, SlotEvent.READY): SlotState.RUNNING,
    (SlotState.STARTING, SlotEvent.FAIL): SlotState.BACKOFF,
    (SlotState.STARTING, SlotEvent.RECYCLE): SlotState.BACKOFF,
    (SlotState.STARTING, SlotEvent.STOP): SlotState.DRAINING,
    (SlotState.RUNNING, SlotEvent.FAIL): SlotState.BACKOFF,
    (SlotState.RUNNING, SlotEvent.RECYCLE): SlotState.BACKOFF,
    (SlotState.RUNNING, SlotEvent.REPLACED): SlotState.RUNNING,
    (SlotState.RUNNING, SlotEvent.LEAVE): SlotState.EXITED,
    (SlotState.RUNNING, SlotEvent.STOP): SlotState.DRAINING,
    (SlotState.BACKOFF, SlotEvent.START): SlotState.STARTING,
    (SlotState.BACKOFF, SlotEvent.FAIL): SlotState.BACKOFF,
    (SlotState.BACKOFF, SlotEvent.STOP): SlotState.STOPPED,
    (SlotState.DRAINING, SlotEvent.STOP): SlotState.DRAINING,
    (SlotState.DRAINING, SlotEvent.END): SlotState.STOPPED,
    (SlotState.EXITED, SlotEvent.START): SlotState.STARTING,
    (SlotState.EXITED, SlotEvent.STOP): SlotState.STOPPED,
}
"""(state, event) → state; every other pair is invalid."""


class InvalidSlotTransition(RuntimeError):
    """An event is not valid in the slot's state: a bug of the master."""

    def __init__(self, name: str, state: SlotState, event: SlotEvent) -> None:
        super().__init__(f"slot {name!r} is {state}, in which {event!r} cannot happen")


class Slot:
    """The state of one slot, its failures, and the time of its next start.

    Example:
        >>> slot = Slot("video-1", Kind("video", entry="studio:video"))
        >>> slot.apply(SlotEvent.START, now=0.0)
        >>> slot.apply(SlotEvent.FAIL, now=2.0)
        >>> slot.state, slot.is_due(now=2.0)
        (<SlotState.BACKOFF: 'BACKOFF'>, True)
    """

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.kind = kind
        self.state = SlotState.STOPPED
        self.generation = 0
        self.failures = 0
        self.ready_at: float | None = None
        self.backoff_until: float | None = None

    @property
    def restarts(self) -> int:
        """How many of its processes have replaced another one."""
        return max(0, self.generation - 1)

    def apply(self, event: SlotEvent, now: float, jitter: float = 0.5) -> None:
        """Change the state by an event; `jitter`, from 0 to 1, varies the back-off by a fifth either way.

        Raises:
            InvalidSlotTransition: the event is not valid in this state.
        """
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise InvalidSlotTransition(self.name, self.state, event)
        delay = 0.0
        if event is SlotEvent.FAIL:
            if self.ready_at is not None and now - self.ready_at >= self.kind.stable_after:
                self.failures = 0
            self.failures += 1
            delay = backoff_delay(self.failures, self.kind.backoff_initial, self.kind.backoff_maximum, jitter)
        self.backoff_until = now + delay if state is SlotState.BACKOFF else None
        self.ready_at = now if state is SlotState.RUNNING else None
        self.state = state

    def next_generation(self) -> int:
        self.generation += 1
        return self.generation

    def try_again_now(self, now: float) -> None:
        """Reset the failures: the cause may be gone after a change."""
        self.failures = 0
        if self.state is SlotState.BACKOFF:
            self.backoff_until = now

    def is_due(self, now: float) -> bool:
        return self.state is SlotState.BACKOFF and self.backoff_until is not None and now >= self.backoff_until


def backoff_delay(failures: int, initial: float, maximum: float, jitter: float) -> float:
    """Return the seconds to wait after consecutive failures: none after the first, then doubled up to a maximum.

    Example:
        >>> [backoff_delay(failures, 0.5, 30.0, jitter=0.5) for failures in (1, 2, 3, 4, 99)]
        [0.0, 0.5, 1.0, 2.0, 30.0]
    """
    if failures <= 1:
        return 0.0
    doubled: float = initial * 2.0 ** min(failures - 2, 32)
    return min(doubled, maximum) * (0.8 + 0.4 * jitter)
