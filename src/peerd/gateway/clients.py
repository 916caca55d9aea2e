"""The engine's view of a connection: what it watches, what it waits for, and the reservations that it holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from peerd.store.jobs.types import ReservedJob
from peerd.store.outcomes.recording import ClaimId

SAFETY_MARGIN: Final = 1.0
"""Seconds before a deadline in which a waiting client is answered that it comes soon (beanstalkd's rule)."""
FOREVER: Final = float("inf")


class ReserveEnd(Enum):
    """How a reserve ends that gets no job."""

    TIMED_OUT = "timed out"
    DEADLINE_SOON = "deadline soon"


ReserveAnswer = Callable[[Any], None]
"""Called with a `Reservation`, a `ReserveEnd` or an `OperationFailed`."""


class Reservation:
    """A job that a client holds until its deadline, by the event loop's clock."""

    __slots__ = ("claim", "deadline", "job")

    def __init__(self, job: ReservedJob, now: float) -> None:
        self.job = job
        self.claim = ClaimId(job.id, job.lease)
        self.deadline = now + job.ttr


class Want:
    """A reserve that has no answer yet, and how many seconds it waits once those before it are answered."""

    __slots__ = ("answer", "timeout")

    def __init__(self, timeout: float, answer: ReserveAnswer) -> None:
        self.timeout = timeout
        self.answer = answer


class QueueClient:
    """One connection, as the engine knows it."""

    __slots__ = (
        "attempts",
        "is_open",
        "number",
        "reservations",
        "timer",
        "timer_at",
        "waits_no_more",
        "waits_on",
        "waits_until",
        "wants",
        "watched",
    )

    def __init__(self) -> None:
        self.watched: tuple[str, ...] = ()
        """The tubes from which it reserves."""
        self.reservations: dict[int, Reservation] = {}
        self.wants: deque[Want] = deque()
        self.waits_on: tuple[str, ...] = ()
        """The tubes under which it is among the waiting clients."""
        self.waits_until = FOREVER
        """When the first of its reserves times out, by the event loop's clock."""
        self.number = 0
        """Its place among the waiting clients: the lowest waits longest; 0 while it waits for nothing."""
        self.attempts = 0
        """How many attempts to get what it wants are in the batch that is being executed."""
        self.is_open = True
        self.waits_no_more = False
        """It sends nothing more: its reserves end at once, with a job or without."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = FOREVER

    @property
    def is_attempting(self) -> bool:
        """Whether the batch that is being executed has attempts of it."""
        return self.attempts > 0

    def soonest_deadline(self) -> float:
        """The earliest deadline of its reservations."""
        return min((held.deadline for held in self.reservations.values()), default=FOREVER)

    def is_deadline_soon(self, now: float) -> bool:
        """Whether it holds a reservation that ends within the margin."""
        return bool(self.reservations) and self.soonest_deadline() - now < SAFETY_MARGIN

    def next_event(self, now: float) -> float:
        """When its timer must fire: a deadline, the margin before it while it waits, or the end of its wait."""
        deadline = self.soonest_deadline()
        if not self.wants:
            return deadline
        soon = deadline - SAFETY_MARGIN
        return min(soon if soon > now else deadline, self.waits_until)
