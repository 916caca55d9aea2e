"""Reserves: clients that want jobs, the attempts to get them, deadlines and time-outs. One small state machine.

A client with an unanswered reserve is among the `Waiters`. It attempts at once, and then whenever a job of its tubes
may be ready; an attempt is one operation of the next batch. Each client has one timer, for the earliest of: the end of
its wait, a deadline, and the margin before a deadline while it waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from peerd.gateway.group_commit import Batch, Callback, OperationFailed, OperationQueue, Run
from peerd.gateway.operations import Demand, Reserve, ReserveJob, TouchHeld
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.gateway.waiting import FOREVER, QueueClient, Reservation, ReserveEnd, Want
from peerd.store.jobs.reserving import ReservedJob

MOST_WANTED: Final = 1_000
"""Jobs of one batch, which are in memory at once, for reserves that have just come."""


class Reserving:
    """The clients of a process, their reserves and their reservations.

    Args:
        operations: of the process.
        ready: knows who waits, and which jobs may be ready.
        ends: of the reservations whose deadline comes, or whose client has gone.
    """

    def __init__(self, operations: OperationQueue, ready: ReadyJobs, ends: ReservationEnds) -> None:
        self.clients: set[QueueClient] = set()
        self._operations = operations
        self._ready = ready
        self._waiters = ready.waiters
        self._ends = ends
        self._granted: Counter[str] = Counter()
        """Jobs that clients have got in the batch whose results are being delivered, by tube."""
        self._loop = asyncio.get_running_loop()
        self._fresh: dict[QueueClient, None] = {}
        """Clients with a reserve that no attempt covers."""
        self._woken: dict[str, float] = {}
        self._short: set[str] = set()
        """Tubes in which the attempts of the present batch have left no job."""

    # ---------------------------------------------------------------- clients

    def connect(self) -> QueueClient:
        """A new client."""
        client = QueueClient()
        self.clients.add(client)
        return client

    def disconnect(self, client: QueueClient) -> None:
        """Drop what a client waits for, and release what it holds; nothing is counted. It may be called again."""
        if not client.is_open:
            return
        client.is_open = False
        self.clients.discard(client)
        client.wants.clear()
        self._stop_waiting(client)
        if client.timer is not None:
            client.timer.cancel()
            client.timer = None
        for held in client.reservations.values():
            self._ends.return_job(held.job)
        client.reservations.clear()

    # ---------------------------------------------------------------- reserves

    def reserve(self, client: QueueClient, timeout: float | None, callback: Callback) -> None:
        """Reserve the next job of the tubes that a client watches.

        Args:
            client: it may have unanswered reserves; they are answered in their order.
            timeout: seconds to wait at the most; None is without end.
            callback: called with the reservation, or with how the reserve ended.
        """
        if not client.wants:
            self._waiters.add(client)
        longest = FOREVER if timeout is None else timeout
        client.wants.append(Want(0.0 if client.waits_no_more else longest, callback))
        if len(client.wants) == 1:
            client.waits_until = self._loop.time() + client.wants[0].timeout
        self._fresh[client] = None
        self._operations.request_batch(1)

    def reserve_job(self, client: QueueClient, job_id: int, callback: Callback) -> None:
        """Reserve a certain job; the result is the reservation, or None."""
        self._operations.submit(client, ReserveJob(job_id), partial(self._reserved_job, client, callback))

    def _reserved_job(self, client: QueueClient, callback: Callback, job: ReservedJob | OperationFailed | None) -> None:
        if isinstance(job, ReservedJob):
            self._grant(client, job, callback)
        else:
            callback(job)

    def touch(self, client: QueueClient, job_id: int, callback: Callback) -> None:
        """Renew the deadline of a job that the client holds; the result is whether it holds it."""
        held = client.reservations.get(job_id)
        if held is None:
            callback(False)
            return
        held.deadline = self._loop.time() + held.job.ttr  # the client's timer finds out when it fires
        self._operations.submit(client, TouchHeld(held.claim), callback)

    # ---------------------------------------------------------------- attempts

    def add_attempts(self, batch: Batch) -> None:
        """Add the attempts that are to be made to a batch that is complete, while no other one is being executed.

        Those that were offered jobs come directly after these offers, the others after all operations; oldest client
        first.
        """
        demands: dict[QueueClient, Demand] = {}
        self._add_attempts_after_offers(demands)
        clients, woken = self._waiters.choose_woken()
        for tube, ready in woken.items():
            self._woken[tube] = self._woken.get(tube, 0.0) + ready
        for client in sorted({*clients, *self._next_fresh()}, key=lambda client: client.number):
            batch.add_last(*self._attempt(client, demands))
        batch.drop_empty_runs()

    def _next_fresh(self) -> list[QueueClient]:
        """Clients with a reserve that no attempt covers, as many as the next batch may give jobs to."""
        chosen: list[QueueClient] = []
        wanted = 0
        for client in self._fresh:
            if not client.attempts and wanted < MOST_WANTED:
                chosen.append(client)
                wanted += len(client.wants)
        return chosen

    def _add_attempts_after_offers(self, demands: dict[QueueClient, Demand]) -> None:
        present: set[tuple[Run, QueueClient]] = set()
        for offer, clients in self._waiters.assign_offers():
            for client in clients:
                if (offer.run, client) not in present:
                    present.add((offer.run, client))
                    offer.run.add(*self._attempt(client, demands))
            self._woken[offer.tube] = self._woken.get(offer.tube, 0.0) + min(offer.jobs, len(clients))
            if len(clients) < offer.jobs:
                self._waiters.wake(offer.tube, offer.jobs - len(clients))

    def _attempt(
        self, client: QueueClient, demands: dict[QueueClient, Demand]
    ) -> tuple[Reserve, Callable[[list[ReservedJob] | OperationFailed], None]]:
        self._fresh.pop(client, None)
        client.attempts += 1
        demand = demands.get(client)
        if demand is None:
            demand = demands[client] = Demand(len(client.wants))
        return Reserve(client.waits_on, demand), partial(self._attempted, client, demand)

    def finish_batch(self) -> None:
        """Ring, and wake the next clients, for jobs that the attempts of a batch may have left."""
        self._ready.ring_for_others(self._granted)
        for tube, ready in self._woken.items():
            left = ready - self._granted[tube]
            if left > 0 and tube not in self._short:
                self._waiters.wake(tube, left)
        self._woken = {}
        self._short.clear()
        self._granted.clear()

    @property
    def has_attempts(self) -> bool:
        """Whether `add_attempts` would add one."""
        return self._waiters.has_woken or any(not client.attempts for client in self._fresh)

    def _attempted(self, client: QueueClient, demand: Demand, found: list[ReservedJob] | OperationFailed) -> None:
        client.attempts -= 1
        if isinstance(found, OperationFailed):  # the client goes on waiting; `Reconciliation` wakes it
            found = []
        if demand.left:
            self._short.update(client.waits_on)
        for job in found:
            self._grant(client, job, client.wants.popleft().callback if client.wants else None)
            self._begin_wait_of_next(client)
        if client.is_open:
            self._settle(client)

    def _grant(self, client: QueueClient, job: ReservedJob, callback: Callback | None) -> None:
        """Give a client a job that was reserved for it; without a client, or an unanswered reserve, the job returns."""
        if not client.is_open or callback is None:
            self._ends.return_job(job)
            return
        self._granted[job.queue] += 1
        held = Reservation(job, self._loop.time())
        client.reservations[job.id] = held
        if held.deadline < client.timer_at:
            self._set_timer(client, held.deadline)
        callback(held)

    # ---------------------------------------------------------------- time

    def _settle(self, client: QueueClient) -> None:
        """Answer the reserves that end without a job now, and set the timer for the others."""
        now = self._loop.time()
        while client.wants and not client.attempts and client not in self._fresh:
            if client.is_deadline_soon(now):
                end = ReserveEnd.DEADLINE_SOON
            elif client.waits_until <= now:
                end = ReserveEnd.TIMED_OUT
            else:
                break
            want = client.wants.popleft()
            self._begin_wait_of_next(client)
            want.callback(end)
        if client.wants:
            self._set_timer(client, self._next_event(client, now))
        elif client.number:
            self._stop_waiting(client)

    def _next_event(self, client: QueueClient, now: float) -> float:
        """When the timer of a client must fire; an attempt that is being made settles it at its end."""
        if client.attempts or client in self._fresh:
            return client.soonest_deadline()
        return client.next_event(now)

    def end_waits(self, client: QueueClient) -> None:
        """Answer the reserves of a client that sends nothing more, also those to come: with a job that is ready, else
        as timed out.
        """
        client.waits_no_more = True
        for want in client.wants:
            want.timeout = 0.0
        self._begin_wait_of_next(client)
        if not client.attempts and client not in self._fresh:  # else when the attempt is over
            self._settle(client)

    def _begin_wait_of_next(self, client: QueueClient) -> None:
        if client.wants:
            client.waits_until = self._loop.time() + client.wants[0].timeout

    def _stop_waiting(self, client: QueueClient) -> None:
        self._waiters.remove(client)
        self._fresh.pop(client, None)

    def _set_timer(self, client: QueueClient, at: float) -> None:
        if at >= client.timer_at:
            return  # the timer fires earlier, and is set again then
        if client.timer is not None:
            client.timer.cancel()
        client.timer_at = at
        client.timer = self._loop.call_at(at, self._on_timer, client)

    def _on_timer(self, client: QueueClient) -> None:
        client.timer, client.timer_at = None, FOREVER
        now = self._loop.time()
        expired = [held for held in client.reservations.values() if held.deadline <= now]
        for held in expired:
            del client.reservations[held.job.id]
            self._ends.expire(client, held)
        self._settle(client)
        self._set_timer(client, self._next_event(client, now))
