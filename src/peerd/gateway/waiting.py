"""Clients as the gateway knows them, which of them wait for which tube, and which jobs are offered to them.

A client watches tubes, waits for jobs of them, and holds reservations. One new job wakes one waiting client.

An operation of the open batch that may make jobs ready offers them: a client that waits gets a job before the next
operation of its producer can change anything. Which clients still wait is known when no other batch is being executed;
until then an offer keeps its place in the batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from peerd.gateway.group_commit import Batch, Callback, Run
from peerd.gateway.operations import Reserve
from peerd.store.jobs.reserving import ReservedJob
from peerd.store.outcomes import ClaimId

SAFETY_MARGIN: Final = 1.0
"""Seconds before a deadline in which a waiting client is answered that it comes soon (beanstalkd's rule)."""
FOREVER: Final = float("inf")
MAX_ATTEMPTS: Final = 64
"""Clients that attempt to reserve at once after a ring that does not say how many jobs there are."""
UNKNOWN_NUMBER: Final = float("inf")


class ReserveEnd(Enum):
    """How a reserve ends that gets no job."""

    TIMED_OUT = "timed out"
    DEADLINE_SOON = "deadline soon"


class Reservation:
    """A job that a client holds until its deadline, by the event loop's clock."""

    __slots__ = ("claim", "deadline", "job")

    def __init__(self, job: ReservedJob, now: float) -> None:
        self.job = job
        self.claim = ClaimId(job.id, job.lease)
        self.deadline = now + job.ttr


class Want(Struct):
    """A reserve that is not answered yet, and how many seconds it waits once those before it are answered."""

    timeout: float
    callback: Callback


class QueueClient:
    """A connection, as the gateway knows it."""

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
        """The place among the waiting clients: the lowest waits longest; 0 for a client that does not wait."""
        self.attempts = 0
        """How many attempts to get what it wants are in the batch that is being executed."""
        self.is_open = True
        self.waits_no_more = False
        """The client sends nothing more: its reserves end at once, with a job or without."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = FOREVER

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


# ---------------------------------------------------------------- who waits


class Offer(NamedTuple):
    """Jobs of a tube that an operation may make ready, for clients that waited when it was submitted.

    Attributes:
        run: where their attempts belong.
        tube: where the jobs are.
        jobs: how many at the most.
        newest: the highest number of those clients.
        is_certain: whether so many become ready in any case.
    """

    run: Run
    tube: str
    jobs: int
    newest: int
    is_certain: bool


class Waiters:
    """The waiting clients by tube, in the order in which they began to wait; and the jobs that they may get."""

    def __init__(self) -> None:
        self._newest = 0
        """The number of the client that was added last."""
        self._by_tube: dict[str, dict[QueueClient, None]] = {}
        self._ready: dict[str, float] = {}
        """Jobs that may be ready in tubes with waiting clients."""
        self._offers: list[Offer] = []
        """The offers of the open batch."""

    def __bool__(self) -> bool:
        return bool(self._by_tube)

    def count(self, tube: str) -> int:
        """How many clients wait for a job of this tube."""
        return len(self._by_tube.get(tube, ()))

    @property
    def total(self) -> int:
        """How many clients wait."""
        return len({client for clients in self._by_tube.values() for client in clients})

    def add(self, client: QueueClient) -> None:
        """Add a client behind all others."""
        self.remove(client)
        self._newest += 1
        client.number = self._newest
        client.waits_on = client.watched
        for tube in client.waits_on:
            self._by_tube.setdefault(tube, {})[client] = None

    def remove(self, client: QueueClient) -> None:
        """Remove a client whose reserves are answered, or that has gone."""
        for tube in client.waits_on:
            clients = self._by_tube.get(tube)
            if clients is not None:
                clients.pop(client, None)
                if not clients:
                    del self._by_tube[tube]
                    self._ready.pop(tube, None)
        client.number = 0
        client.waits_on = ()

    def wake(self, tube: str, jobs: float = UNKNOWN_NUMBER) -> None:
        """Note that so many jobs of a tube may be ready."""
        if tube in self._by_tube:
            self._ready[tube] = self._ready.get(tube, 0.0) + jobs

    def wake_all(self, tubes: Sequence[str]) -> None:
        """Note that any number of jobs of these tubes may be ready; of all tubes if none is named."""
        for tube in tubes or self._by_tube:
            self.wake(tube)

    @property
    def has_woken(self) -> bool:
        """Whether a client may get a job and does not attempt to yet."""
        return any(next(self._idle(tube), None) is not None for tube in self._ready)

    def choose_woken(self) -> tuple[list[QueueClient], dict[str, float]]:
        """The clients that attempt to reserve now, the oldest first, and the jobs that they were woken for.

        A tube stays woken while all its clients attempt already: their attempts may be older than the job.
        """
        chosen: set[QueueClient] = set()
        woken: dict[str, float] = {}
        for tube, ready in list(self._ready.items()):
            first = list(islice(self._idle(tube), int(min(ready, MAX_ATTEMPTS))))
            if first:
                woken[tube] = self._ready.pop(tube)
                chosen.update(first)
        return sorted(chosen, key=lambda client: client.number), woken

    def _idle(self, tube: str) -> Iterator[QueueClient]:
        return (client for client in self._by_tube[tube] if not client.attempts)

    # ---------------------------------------------------------------- offers

    def offer(self, batch: Batch, after: object, tube: str, jobs: int, *, is_certain: bool) -> None:
        """Offer jobs that an operation in a batch may make ready.

        Args:
            batch: it has the operation.
            after: the client of the operation.
            tube: where the jobs are.
            jobs: how many at the most.
            is_certain: whether so many become ready in any case.
        """
        jobs = min(jobs, self.count(tube))
        if jobs:
            self._offers.append(Offer(batch.run_after(after, Reserve), tube, jobs, self._newest, is_certain))

    def assign_offers(self) -> Iterator[tuple[Offer, list[QueueClient]]]:
        """All offers, each with the clients that may get its jobs. No batch is being executed, and there are no more.

        An uncertain offer may have served its clients or not; so those after it are for its clients too.
        """
        offers, self._offers = self._offers, []
        served: Counter[str] = Counter()
        maybe_served: Counter[str] = Counter()
        for offer in offers:
            first = served[offer.tube]
            last = first + maybe_served[offer.tube] + offer.jobs
            (served if offer.is_certain else maybe_served)[offer.tube] += offer.jobs
            longest_waiting = islice(self._by_tube.get(offer.tube, ()), first, last)
            yield offer, [client for client in longest_waiting if client.number <= offer.newest]
