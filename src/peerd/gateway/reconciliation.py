"""Compares the reservations in the table with those in memory: once a minute, and after a batch has failed.

A reservation that only the table has was made by a batch whose reply was lost: it is released. One that only the memory
has was taken away by an action (a task was moved or canceled): it is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from peerd.gateway.batches import OperationFailed
from peerd.gateway.clients import QueueClient
from peerd.gateway.operation_queue import OperationQueue
from peerd.gateway.operations import StoreQuery
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.store.outcomes.recording import ClaimId, claims_of_process

EVERY: Final = 60.0
"""Seconds between two comparisons."""
AFTER_FAILURE: Final = 1.0
"""Seconds from a failed batch to the next comparison."""


class Reconciliation:
    """The comparison, and when it is made.

    Args:
        operations: of the process.
        process_id: in ``processes``.
        clients: those that are connected.
        ends: of the reservations that no client knows.
        on_done: called after each comparison.
    """

    def __init__(
        self,
        operations: OperationQueue,
        process_id: int,
        clients: Collection[QueueClient],
        ends: ReservationEnds,
        on_done: Callable[[], None],
    ) -> None:
        self._operations = operations
        self._process_id = process_id
        self._clients = clients
        self._ends = ends
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def compare_in(self, seconds: float) -> None:
        """Compare after so many seconds, or earlier if that is planned."""
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._read)

    def close(self) -> None:
        """Compare no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _read(self) -> None:
        self._timer = None
        self._operations.submit(self, StoreQuery(claims_of_process, (self._process_id,)), self._compare)

    def _compare(self, found: Mapping[ClaimId, int | None] | OperationFailed) -> None:
        if isinstance(found, OperationFailed):
            return  # a failed batch is followed by another comparison
        self.compare_in(EVERY)
        known: set[ClaimId] = set()
        for client in self._clients:
            for held in [held for held in client.reservations.values() if held.claim not in found]:
                del client.reservations[held.job.id]
            known.update(held.claim for held in client.reservations.values())
        for claim in found.keys() - known:
            self._ends.return_claim(claim)
        self._on_done()
