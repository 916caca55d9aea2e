"""A slot: a place for one process after another. What may happen to it, and what follows, is the table TRANSITIONS.

It knows no process and reads no clock: `now` is passed in, seconds of any clock that does not jump.

A slot and its processes are two things. A tainted process is still at work when its replacement starts; it belongs to
the slot, but the slot's state is that of the replacement. A process that boots to take over from a running one (after
a reload) is not the slot's state yet either: the slot is RUNNING all the while, and is so again with the new one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from peerd.supervision.plan import Kind


class SlotState(StrEnum):
    """How a slot is."""

    STARTING = "STARTING"
    """Its process has been started and is not ready yet."""
    RUNNING = "RUNNING"
    BACKOFF = "BACKOFF"
    """It has no process, and gets one when `backoff_until` has come (after a first failure that is at once)."""
    DRAINING = "DRAINING"
    """Its process has been asked to stop."""
    EXITED = "EXITED"
    """Its process has left by its own will with status 0, and is not replaced."""
    STOPPED = "STOPPED"
    """Not started yet, or stopped as asked."""


class SlotEvent(StrEnum):
    """What happens to a slot."""

    START = "start"
    READY = "ready"
    FAIL = "fail"
    """Its process has died, could not be started, or is tainted."""
    RECYCLE = "recycle"
    """Its process has asked for a fresh one in its place."""
    REPLACED = "replaced"
    """Another process, which was started beside its own, has become ready and has taken over."""
    LEAVE = "leave"
    """Its process has left with status 0 by its own will. (One that was never ready has not left: it has failed.)"""
    STOP = "stop"
    """It is to have no process: the node stops, or has fewer slots."""
    END = "end"
    """The process that was asked to stop is gone, however it went."""


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
"""(state, event) → state; every pair that is not here cannot happen."""


class InvalidTransition(RuntimeError):
    """An event came to a slot in a state in which it cannot: a fault of the master."""

    def __init__(self, name: str, state: SlotState, event: SlotEvent) -> None:
        super().__init__(f"slot {name!r} is {state}, in which {event!r} cannot happen")


class Slot:
    """The state of one slot, and when it is to be started again.

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
        """How many processes have replaced another one."""
        return max(0, self.generation - 1)

    def apply(self, event: SlotEvent, now: float, jitter: float = 0.5) -> None:
        """Let an event happen.

        Args:
            event: what happens.
            now: the time, seconds.
            jitter: a number from 0 to 1, which spreads the wait by a fifth to both sides.

        Raises:
            Impossible: it cannot happen in this state.
        """
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise InvalidTransition(self.name, self.state, event)
        if event is SlotEvent.FAIL:
            self._count_the_failure(now)
        self.backoff_until = None
        if state is SlotState.BACKOFF:
            self.backoff_until = now + (self._wait(jitter) if event is SlotEvent.FAIL else 0.0)
        self.ready_at = now if state is SlotState.RUNNING else None
        self.state = state

    def next_generation(self) -> int:
        """Count one more process, and return its number."""
        self.generation += 1
        return self.generation

    def try_again_now(self, now: float) -> None:
        """Forget earlier failures: something has changed, and it may go well now."""
        self.failures = 0
        if self.state is SlotState.BACKOFF:
            self.backoff_until = now

    def is_due(self, now: float) -> bool:
        """Whether it waits for a new process, and has waited long enough."""
        return self.state is SlotState.BACKOFF and self.backoff_until is not None and now >= self.backoff_until

    def _count_the_failure(self, now: float) -> None:
        if self.ready_at is not None and now - self.ready_at >= self.kind.stable_after:
            self.failures = 0
        self.failures += 1

    def _wait(self, jitter: float) -> float:
        return backoff_delay(self.failures, self.kind.backoff_initial, self.kind.backoff_maximum, jitter)


def backoff_delay(failures: int, initial: float, maximum: float, jitter: float) -> float:
    """Return the seconds to wait after so many failures in a row: none after the first, then doubled to a maximum.

    Example:
        >>> [backoff_delay(failures, 0.5, 30.0, jitter=0.5) for failures in (1, 2, 3, 4, 99)]
        [0.0, 0.5, 1.0, 2.0, 30.0]
    """
    if failures <= 1:
        return 0.0
    doubled: float = initial * 2.0 ** min(failures - 2, 32)
    return min(doubled, maximum) * (0.8 + 0.4 * jitter)
