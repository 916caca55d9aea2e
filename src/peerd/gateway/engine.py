"""The engine: what the connections of one process do with jobs, whichever protocol they speak.

Its parts are wired here. `OperationQueue` executes operations in batches, `Reserving` has the reserves and
reservations, `ReadyJobs` tells of jobs that are ready, and `Puts`, `ReservationEnds` and `TubeLife` are what commands
do. Answers come after the commit. Everything but the batches runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from peerd.config.settings import QueueSettings
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.lifecycle import Status
from peerd.domain.ring import Ring
from peerd.domain.task import NewTask
from peerd.gateway import reconciliation
from peerd.gateway.batches import Answer, OperationFailed
from peerd.gateway.clients import QueueClient, Reservation, ReserveAnswer
from peerd.gateway.operation_queue import OperationQueue
from peerd.gateway.operations import Holder, StoreCall, StoreQuery, TakeJob, TouchHeld
from peerd.gateway.outbox import Outbox
from peerd.gateway.puts import Puts
from peerd.gateway.queue_options import QueueOptions
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.reconciliation import Reconciliation
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.gateway.reserving import Reserving
from peerd.gateway.tube_life import TubeLife
from peerd.gateway.tubes import Tube, Tubes
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import queue_operation_failed
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store import jobs
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.jobs.outcomes import RecordedFailure
from peerd.store.jobs.types import ReservedJob

MAX_TUBES_CHECKED: Final = 100
"""Tubes without connections of which it is found out once a minute whether they have jobs."""

KICK_PART: Final = 100
"""Jobs that one transaction kicks at the most: all other clients wait for it."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the settings that an engine has.

    ``poll_every`` seconds pass between two polls for waiting clients. ``is_alone``: there is no agent and no other
    process, so the engine stages the due jobs of the whole table itself.
    """

    queues: Mapping[str, QueueSettings] = msgspec.field(default_factory=dict)
    poll_every: float = 10.0
    is_alone: bool = False


class Engine:
    """All jobs and clients of one process.

    Args:
        database: not closed with it.
        holder: the process, by its row in ``processes``.
        options: from the settings.
        ring: rings at all nodes of the cluster.
        events: what happens.
        outages: of the database.
    """

    def __init__(
        self,
        database: Database,
        holder: Holder,
        options: EngineOptions,
        ring: Callable[[Ring], None],
        events: EventBus,
        outages: OutageTracker,
    ) -> None:
        self.holder = holder
        self.tubes = Tubes()
        self.outbox = Outbox()
        self.poll_every = options.poll_every
        """Seconds; may be changed."""
        self._events = events
        self._outages = outages
        self._clients: set[QueueClient] = set()
        queues, is_alone = QueueOptions(options.queues), options.is_alone
        self._operations = OperationQueue(database, holder, self._on_failures, self._on_delivered)
        self._ready = ReadyJobs(self._operations, ring, follow_table=is_alone)
        self._tube_life = TubeLife(self._operations, self._ready, self.tubes, is_alone=is_alone)
        self._puts = Puts(self._operations, self._ready, self.tubes, queues)
        self._ends = ReservationEnds(self._operations, self._ready, self._tube_life, self._puts.capacities, queues)
        self._reserving = Reserving(self._operations.request_batch, self._ends.return_job, self._ends.expire)
        self._reconciliation = Reconciliation(
            self._operations, holder.process_id, self._clients, self._ends.return_claim, self._on_reconciled
        )

    def start(self) -> None:
        """Begin to execute operations."""
        self._operations.start(self._reserving)
        self._ready.start(self._reserving)
        self._reconciliation.compare_in(reconciliation.EVERY)

    async def finish(self) -> None:
        """Wait until all operations so far have been executed."""
        await self._operations.finish()

    def close(self) -> None:
        """End; operations that were not executed are dropped."""
        self._ready.close()
        self._reconciliation.close()
        self._operations.close()

    # ---------------------------------------------------------------- clients

    def connect(self) -> QueueClient:
        """A new client."""
        client = QueueClient()
        self._clients.add(client)
        return client

    def disconnect(self, client: QueueClient) -> None:
        """Release what a client holds; nothing is counted. It may be called again."""
        if not client.is_open:
            return
        client.is_open = False
        self._clients.discard(client)
        self._reserving.forget(client)
        for held in client.reservations.values():
            self._ends.return_job(held.job)
        client.reservations.clear()

    @property
    def waiting(self) -> int:
        """Clients that wait for a job."""
        return self._reserving.waiters.total

    def waiting_on(self, tube: str) -> int:
        """Clients that wait for a job of this tube."""
        return self._reserving.waiters.count(tube)

    @property
    def total_puts(self) -> int:
        """Jobs that were put."""
        return self._puts.total

    @property
    def job_timeouts(self) -> int:
        """Reservations that have ended at their deadline."""
        return self._ends.timeouts

    # ---------------------------------------------------------------- what clients ask for

    def has_unknown_capacity(self, queue: str) -> bool:
        """Whether a put into a queue waits for a count, so that what follows it must wait for its answer."""
        return self._puts.capacities.is_unknown(queue)

    def put(self, client: QueueClient, job: NewTask, answer: Answer) -> None:
        """Insert a job; the answer is `Enqueued`, or `TubeFull`."""
        self._puts.put(client, job, answer)

    def reserve(self, client: QueueClient, timeout: float | None, answer: ReserveAnswer) -> None:
        """Reserve the next job of the tubes that the client watches; see `Reserving.want`."""
        self._reserving.want(client, timeout, answer)

    def end_waits(self, client: QueueClient) -> None:
        """Answer the reserves of a client that sends nothing more: they have timed out."""
        self._reserving.end_waits(client)

    def reserve_job(self, client: QueueClient, job_id: int, answer: Answer) -> None:
        """Reserve a certain job; the answer is the reservation, or None."""
        self._operations.submit(client, TakeJob(job_id), partial(self._took, client, answer))

    def _took(self, client: QueueClient, answer: Answer, job: ReservedJob | OperationFailed | None) -> None:
        if isinstance(job, ReservedJob):
            self._reserving.grant(client, job, answer)
        else:
            answer(job)

    def delete(self, client: QueueClient, job_id: int, answer: Answer) -> None:
        """Delete a job that the client holds, or that none holds; the answer is whether it was there."""
        self._ends.delete(client, job_id, answer)

    def release(
        self, client: QueueClient, job_id: int, answer: Answer, *, priority: int | None = None, delay: int | None = None
    ) -> None:
        """Release a job that the client holds; the answer is an `Ending`, because a queue may bury it instead."""
        self._ends.release(client, job_id, answer, priority=priority, delay=delay)

    def bury(self, client: QueueClient, job_id: int, priority: int | None, answer: Answer) -> None:
        """Bury a job that the client holds; the answer is an `Ending`."""
        self._ends.bury(client, job_id, priority, answer)

    def end(
        self,
        client: QueueClient,
        held: Reservation,
        function: Callable[..., bool | RecordedFailure],
        arguments: tuple[Any, ...],
        answer: Answer,
    ) -> None:
        """End a reservation of a client by a function of the store, which is called with the process and the claim.

        The answer is its result: whether the reservation was held.
        """
        self._ends.end(client, held, function, (self.holder.process_id, held.claim, *arguments), answer)

    def touch(self, client: QueueClient, job_id: int, answer: Answer) -> None:
        """Renew the deadline of a job that the client holds; the answer is whether it holds it."""
        held = client.reservations.get(job_id)
        if held is None:
            answer(False)
            return
        self._reserving.renew(held)
        self._operations.submit(client, TouchHeld(held.claim), answer)

    def kick(self, client: QueueClient, tube: str, bound: int, answer: Answer) -> None:
        """Make buried jobs of a tube ready, or delayed ones if none is buried; the answer is how many.

        A large kick is done in parts, between which other clients have their turn.
        """
        self._kick_part(client, tube, bound, 0, None, answer)

    def _kick_part(
        self,
        client: QueueClient,
        tube: str,
        left: int,
        kicked: int,
        statuses: tuple[Status, ...] | None,
        answer: Answer,
    ) -> None:
        wanted = min(left, KICK_PART)

        def executed(part: jobs.KickedPart | OperationFailed) -> None:
            if isinstance(part, OperationFailed):
                answer(part)
                return
            self._ready.add(tube, part.kicked)
            if part.kicked == wanted < left:
                self._kick_part(client, tube, left - wanted, kicked + wanted, part.statuses, answer)
            else:
                answer(kicked + part.kicked)

        self._operations.submit(client, StoreCall(jobs.kick_part, (tube, wanted, statuses)), executed)
        self._operations.offer(client, tube, min(wanted, self.waiting_on(tube)))

    def kick_job(self, client: QueueClient, job_id: int, answer: Answer) -> None:
        """Make a buried or delayed job ready; the answer is its queue, or None."""
        self._operations.submit(client, StoreCall(jobs.kick_job, (job_id,)), partial(self._kicked_job, client, answer))

    def _kicked_job(self, client: QueueClient, answer: Answer, queue: str | OperationFailed | None) -> None:
        if isinstance(queue, str):
            self._ready.add(queue)
            self._operations.offer(client, queue)
        answer(queue)

    def pause(self, client: QueueClient, tube: str, seconds: int, answer: Answer) -> None:
        """Let no job of a tube be reserved for so many seconds; 0 ends a pause. The answer: whether the tube lives."""
        self._tube_life.pause(client, tube, seconds, answer)

    def may_have_ended(self, tube: Tube | None) -> None:
        """End a tube that no connection needs any more, if it has no jobs."""
        self._tube_life.may_have_ended(tube)

    def query(
        self, client: QueueClient, function: Callable[..., Any], arguments: tuple[Any, ...], answer: Answer
    ) -> None:
        """Read from the store; the answer is what the function returns."""
        self._operations.submit(client, StoreQuery(function, arguments), answer)

    def call(
        self, client: QueueClient, function: Callable[..., Any], arguments: tuple[Any, ...], answer: Answer
    ) -> None:
        """Run a function of the store; the answer is what it returns."""
        self._operations.submit(client, StoreCall(function, arguments), answer)

    # ---------------------------------------------------------------- from elsewhere

    def on_ring(self, queues: Sequence[str]) -> None:
        """Let waiting clients attempt: jobs may be ready in these queues, or in any if none is named."""
        self._ready.on_ring(queues)

    async def poll_for_waiters(self) -> None:
        """Let waiting clients attempt now and then, whatever rings were lost; it does not return."""
        while True:
            await asyncio.sleep(self.poll_every)
            if self._reserving.waiters:
                self._reserving.wake_all()

    def _on_failures(self, errors: Sequence[Exception]) -> None:
        self._reconciliation.compare_in(reconciliation.AFTER_FAILURE)
        for error in errors:
            if isinstance(error, DatabaseUnavailable):
                self._outages.lost(error)
            else:
                self._events.emit(queue_operation_failed(describe_exception(error)))

    def _on_delivered(self) -> None:
        self.outbox.flush()
        self._ready.ring_for_others()

    def _on_reconciled(self) -> None:
        self._outages.found()
        self._reserving.wake_all()
        self._tube_life.end_unneeded(MAX_TUBES_CHECKED)
