"""Values of the operations on jobs: what a reservation gets, what its holder asks for, and figures of tubes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from peerd.store.outcomes import ClaimId

URGENT_ABOVE: Final = 65_536 - 1024
"""Jobs of a higher priority than this are urgent: those whose pri is below 1024."""

ReleaseCounter = Literal["releases", "timeouts"]
"""What the end of a reservation counts as. The end of a connection counts as nothing."""


class JobState(StrEnum):
    """The states of a job."""

    READY = "ready"
    DELAYED = "delayed"
    RESERVED = "reserved"
    BURIED = "buried"


class ReservedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was reserved.

    Attributes:
        ttr: seconds until its deadline, at the reservation and after each touch.
        lease: names this reservation in every later write.
        has_attempts: workers have tried it without success, so that it may have rows in ``attempts``.
        timeouts, releases: how often a reservation of it has ended so.
    """

    id: int
    queue: str
    body: bytes
    priority: int
    ttr: int
    lease: int
    unique_key: str | None
    has_attempts: bool
    timeouts: int
    releases: int

    @property
    def claim(self) -> ClaimId:
        """The identity of the reservation."""
        return ClaimId(self.id, self.lease)


class Release(msgspec.Struct, frozen=True):
    """A reservation that is to end, with the job ready or, after a delay, scheduled.

    Attributes:
        claim: the reservation.
        priority: the new priority; None leaves it as it is.
        delay: seconds; 0 and None make it ready, and None leaves the delay that is shown as it is.
        counts: the counter to raise.
    """

    claim: ClaimId
    priority: int | None = None
    delay: int | None = None
    counts: ReleaseCounter | None = None


class Bury(msgspec.Struct, frozen=True):
    """A reservation that is to end, with the job buried.

    Attributes:
        claim: the reservation.
        priority: the new priority; None leaves it as it is.
        order: microseconds of a clock; jobs are kicked in this order.
        counts: the counter to raise beside the one of buries.
    """

    claim: ClaimId
    priority: int | None
    order: int
    counts: ReleaseCounter | None = None


class FoundJob(NamedTuple):
    """A job that was looked at and not reserved."""

    id: int
    body: bytes


class JobStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a job; times are in whole seconds.

    Attributes:
        age: since it was put.
        delay: the last one that was given.
        ttr: None for a task that no queue client has put or reserved.
        time_left: until its deadline, or until it is ready; 0 in other states.
    """

    id: int
    queue: str
    state: JobState
    priority: int
    age: int
    delay: int
    ttr: int | None
    time_left: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int


class TubeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs in each state, of one tube or of all; urgent ones are among the ready ones."""

    urgent: int = 0
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0

    @property
    def jobs(self) -> int:
        """The number of jobs in any state."""
        return self.ready + self.reserved + self.delayed + self.buried


class TubePause(msgspec.Struct, frozen=True):
    """The pause of a tube: the seconds that were last given, and the seconds that are left; 0 where there is none."""

    seconds: int
    left: int
