"""How reservations end: by their holder's word, by their deadline, with their connection, and by a comparison.

Once a minute, and after a batch has failed, the reservations in the table are compared with those in memory. One that
only the table has was made by a batch whose reply was lost: it is released. One that only the memory has was taken away
by an action (a task was moved or canceled): it is forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

from peerd.config.settings import QueueSettings
from peerd.domain.task import delay_until_start
from peerd.gateway.group_commit import Callback, OperationFailed, OperationQueue, Written
from peerd.gateway.operations import BuryHeld, DeleteHeld, HeldCall, ReleaseHeld, StoreCall, StoreQuery
from peerd.gateway.puts import NO_OPTIONS, QueueCapacities
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.tubes import Tubes
from peerd.gateway.waiting import QueueClient, Reservation
from peerd.store.jobs.free import delete_free
from peerd.store.jobs.holding import Bury, RecordedFailure, Release
from peerd.store.jobs.reserving import ReservedJob
from peerd.store.outcomes import ClaimId, claims_of_process

SOONEST_STAGING: Final = 0.001
"""Seconds after which a failed job is staged for its next attempt, if that is due at once."""
RECONCILE_EVERY: Final = 60.0
"""Seconds between two comparisons."""
RECONCILE_AFTER_FAILURE: Final = 1.0
"""Seconds from a failed batch to the next comparison."""


class Ending(Enum):
    """How the release or the burial of a job ends."""

    RELEASED = "released"
    BURIED = "buried"
    NOT_FOUND = "not found"


class ReservationEnds:
    """Ends the reservations of a process.

    Args:
        operations: of the process.
        ready: announces the jobs that are ready again.
        tubes: they count deleted jobs.
        capacities: counts jobs that have ended.
        queues: the sections ``[queues.NAME]``.
    """

    def __init__(
        self,
        operations: OperationQueue,
        ready: ReadyJobs,
        tubes: Tubes,
        capacities: QueueCapacities,
        queues: Mapping[str, QueueSettings],
    ) -> None:
        self.timeouts = 0
        self._operations = operations
        self._ready = ready
        self._tubes = tubes
        self._capacities = capacities
        self._queues = queues
        self._with_history = frozenset(name for name, queue in queues.items() if queue.history is not None)
        """Queues whose finished jobs are kept."""

    # ---------------------------------------------------------------- by the holder, or by anyone

    def delete(self, client: QueueClient, job_id: int, callback: Callback) -> None:
        """Delete a job that the client holds, or that none holds; the result is whether it was there."""
        held = client.reservations.pop(job_id, None)
        self._capacities.begin_end()
        if held is None:
            delete = partial(delete_free, ids=[job_id], keep=self._with_history)
            self._operations.submit(client, StoreCall(delete), partial(self._deleted, callback))
        else:
            operation = DeleteHeld(held.claim, held.job.queue in self._with_history)
            self._operations.submit(client, operation, partial(self._ended_by_holder, client, held, callback))

    def _deleted(self, callback: Callback, result: Mapping[int, str] | OperationFailed) -> None:
        self._capacities.finish_end()
        if isinstance(result, OperationFailed):
            callback(result)
            return
        for queue in result.values():
            self._count_delete(queue)
        callback(bool(result))

    def release(
        self,
        client: QueueClient,
        job_id: int,
        callback: Callback,
        *,
        priority: int | None = None,
        delay: int | None = None,
    ) -> None:
        """Release a job that the client holds; the result is an `Ending`, because a queue may bury it instead."""
        held = client.reservations.pop(job_id, None)
        if held is None:
            callback(Ending.NOT_FOUND)
        elif self._is_buried_instead(held):
            self._bury(client, held, priority, callback)
        else:
            release = Release(claim=held.claim, priority=priority, delay=delay, counts="releases")
            self._release(client, held.job.queue, release, partial(self._released, client, held, delay or 0, callback))

    def _released(
        self, client: QueueClient, held: Reservation, delay: int, callback: Callback, result: Written
    ) -> None:
        if result is True and delay:
            self._ready.expect(delay_until_start(delay))
        elif result is True:
            self._ready.add(held.job.queue)
        self._ended(client, held, callback, Ending.RELEASED, result)

    def bury(self, client: QueueClient, job_id: int, priority: int | None, callback: Callback) -> None:
        """Bury a job that the client holds; the result is an `Ending`."""
        held = client.reservations.pop(job_id, None)
        if held is None:
            callback(Ending.NOT_FOUND)
        else:
            self._bury(client, held, priority, callback)

    def end(
        self,
        client: QueueClient,
        held: Reservation,
        function: Callable[..., bool | RecordedFailure],
        arguments: tuple[Any, ...],
        callback: Callback,
    ) -> None:
        """End a reservation of a client by a function of the store, which is called with the process and the claim.

        The result is its result: whether the reservation was held.
        """
        del client.reservations[held.job.id]
        self._capacities.begin_end()
        ended = partial(self._ended_by_holder, client, held, callback)
        self._operations.submit(client, HeldCall(held.claim, function, arguments), ended)

    def _ended_by_holder(
        self, client: QueueClient, held: Reservation, callback: Callback, result: RecordedFailure | Written
    ) -> None:
        self._restore_if_unknown(client, held, result)
        self._capacities.finish_end()
        match result:
            case RecordedFailure(retry_in=None):
                self._capacities.leave(held.job.queue)
            case RecordedFailure(retry_in=float() | int() as seconds):
                self._ready.expect(max(seconds, SOONEST_STAGING))
            case True:
                self._count_delete(held.job.queue)
        callback(result)

    # ---------------------------------------------------------------- by time, and with the connection

    def expire(self, client: QueueClient, held: Reservation) -> None:
        """Release a job whose deadline has come."""
        self.timeouts += 1
        if self._is_buried_instead(held):
            self._bury(client, held, None, ignore)
        else:
            release = Release(claim=held.claim, counts="timeouts")
            self._release(self, held.job.queue, release, partial(self._returned, held.job.queue))

    def return_job(self, job: ReservedJob) -> None:
        """Release a job whose client has gone; nothing is counted."""
        release = Release(claim=ClaimId(job.id, job.lease))
        self._release(self, job.queue, release, partial(self._returned, job.queue))

    def return_claim(self, claim: ClaimId) -> None:
        """Release a reservation that only the table has.

        A client may have ended it, by an operation that is not executed yet: that one goes first.
        """
        release = Release(claim=claim)
        self._operations.submit_last(ReleaseHeld(release), ignore)

    def _returned(self, queue: str, result: Written) -> None:
        if result is True:
            self._ready.add(queue)

    # ---------------------------------------------------------------- the ends themselves

    def _is_buried_instead(self, held: Reservation) -> bool:
        most = self._queues.get(held.job.queue, NO_OPTIONS).bury_after
        return most is not None and held.job.timeouts + held.job.releases + 1 >= most

    def _release(self, client: object, queue: str, release: Release, callback: Callback) -> None:
        self._operations.submit(client, ReleaseHeld(release), callback)
        if not release.delay:
            self._ready.offer(client, queue)

    def _bury(self, client: QueueClient, held: Reservation, priority: int | None, callback: Callback) -> None:
        bury = Bury(claim=held.claim, priority=priority, order=time.time_ns() // 1000)
        ended = partial(self._ended, client, held, callback, Ending.BURIED)
        self._operations.submit(client, BuryHeld(bury), ended)

    def _ended(
        self, client: QueueClient, held: Reservation, callback: Callback, ending: Ending, result: Written
    ) -> None:
        self._restore_if_unknown(client, held, result)
        callback(result if isinstance(result, OperationFailed) else ending if result else Ending.NOT_FOUND)

    def _restore_if_unknown(self, client: QueueClient, held: Reservation, result: object) -> None:
        """Keep a reservation whose end may not have been written; its client may try again."""
        if isinstance(result, OperationFailed) and client.is_open:
            client.reservations[held.job.id] = held

    def _count_delete(self, queue: str) -> None:
        self._capacities.leave(queue)
        self._tubes.count_delete(queue)


def ignore(_: object) -> None:
    """Do nothing with the result of an operation: the table is right after each."""


# ---------------------------------------------------------------- reservations that only the table or the memory has


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
        self.compare_in(RECONCILE_EVERY)
        known: set[ClaimId] = set()
        for client in self._clients:
            for held in [held for held in client.reservations.values() if held.claim not in found]:
                del client.reservations[held.job.id]
            known.update(held.claim for held in client.reservations.values())
        for claim in found.keys() - known:
            self._ends.return_claim(claim)
        self._on_done()
