"""Puts: the capacity of the queue, the default expiry, the insert, and the clients that wait for such a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from peerd.domain.task import SPAN_LIMIT, NewTask
from peerd.gateway.batches import Answer, OperationFailed
from peerd.gateway.clients import QueueClient
from peerd.gateway.operation_queue import OperationQueue
from peerd.gateway.operations import Put, StoreQuery
from peerd.gateway.queue_capacity import Admission, QueueCapacities, count_for_capacity, wait_for_ends
from peerd.gateway.queue_options import QueueOptions
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.tubes import Tubes
from peerd.store.enqueue.enqueue import Enqueued


class TubeFull:
    """The answer to a put into a tube that has as many jobs as its queue may have."""


class Puts:
    """Inserts the jobs of queue clients.

    Args:
        operations: of the process.
        ready: announces each job.
        tubes: their counters.
        options: of the queues.
    """

    def __init__(self, operations: OperationQueue, ready: ReadyJobs, tubes: Tubes, options: QueueOptions) -> None:
        self.total = 0
        self.capacities = QueueCapacities(options.limits(), asyncio.get_running_loop().time)
        self._operations = operations
        self._ready = ready
        self._tubes = tubes
        self._options = options
        self._waiting_for_count: dict[str, list[tuple[Callable[[], None], Answer]]] = {}

    def put(self, client: QueueClient, job: NewTask, answer: Answer) -> None:
        """Insert a job; the answer is `Enqueued`, or `TubeFull`."""
        self._put(client, job, answer)

    def _put(self, client: QueueClient, job: NewTask, answer: Answer, *, after_ends: bool = False) -> None:
        match self.capacities.admit(job.queue, after_ends=after_ends):
            case Admission.ADMITTED:
                self._insert(client, job, answer)
            case Admission.FULL:
                answer(TubeFull())
            case Admission.UNKNOWN:
                self._put_after_count(job.queue, partial(self._put, client, job, answer, after_ends=True), answer)

    def _put_after_count(self, queue: str, put: Callable[[], None], answer: Answer) -> None:
        """Put when all operations so far are written, and the jobs of a queue counted if they must be, once for all."""
        waiting = self._waiting_for_count.setdefault(queue, [])
        waiting.append((put, answer))
        if len(waiting) == 1:
            query = StoreQuery(wait_for_ends)
            if self.capacities.must_count(queue):
                query = StoreQuery(count_for_capacity, (queue, self.capacities.most(queue)))
            self._operations.submit_last(query, partial(self._counted, queue))

    def _counted(self, queue: str, result: tuple[int, float] | OperationFailed | None) -> None:
        waiting = self._waiting_for_count.pop(queue)
        if isinstance(result, tuple):
            self.capacities.record(queue, *result)
        for put, answer in waiting:
            if isinstance(result, OperationFailed):
                answer(result)
            else:
                put()

    def _insert(self, client: QueueClient, job: NewTask, answer: Answer) -> None:
        job = self._with_expiry(job)
        self._operations.submit(client, Put(job), partial(self._inserted, job, answer))
        if not job.start_in:
            self._ready.offer(client, job.queue, is_certain=job.unique_key is None)

    def _with_expiry(self, job: NewTask) -> NewTask:
        """A job that expires after the time of its queue, unless it says otherwise."""
        expires_in = self._options.of(job.queue).expire_after
        if expires_in is None or job.finish_in is not None or job.finish_at is not None:
            return job
        finish_in = expires_in + (job.start_in or 0.0)
        return msgspec.structs.replace(job, finish_in=finish_in) if finish_in < SPAN_LIMIT else job

    def _inserted(self, job: NewTask, answer: Answer, result: Enqueued | OperationFailed) -> None:
        if isinstance(result, Enqueued) and result.created:
            self.total += 1
            self._tubes.get_or_create(job.queue).puts += 1
            if job.start_in:
                self._ready.expect(job.start_in)
            else:
                self._ready.add(job.queue)
        else:
            self.capacities.leave(job.queue)
        answer(result)
