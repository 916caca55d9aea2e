"""Jobs that the operations of the open batch may make ready, and the clients that attempt to get them.

A client that waits gets a job before the next operation of its producer can change anything. Which clients still wait
is known when no other batch is being executed; until then an offer keeps its place in the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from peerd.gateway.batches import Batch, Run
from peerd.gateway.clients import QueueClient
from peerd.gateway.operations import Reserve
from peerd.gateway.waiters import Waiters


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


class Offers:
    """The offers of the open batch.

    Args:
        waiters: the clients that wait.
    """

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._offers: list[Offer] = []

    def add(self, batch: Batch, after: object, tube: str, jobs: int, *, is_certain: bool) -> None:
        """Add an offer of jobs that an operation in a batch may make ready.

        Args:
            batch: it has the operation.
            after: the client of the operation.
            tube: where the jobs are.
            jobs: how many at the most.
            is_certain: whether so many become ready in any case.
        """
        jobs = min(jobs, self._waiters.count(tube))
        if jobs:
            run = batch.run_after(after, Reserve)
            self._offers.append(Offer(run, tube, jobs, self._waiters.newest, is_certain))

    def assign(self) -> Iterator[tuple[Offer, list[QueueClient]]]:
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
            yield offer, self._waiters.longest_waiting(offer.tube, first, last, offer.newest)
