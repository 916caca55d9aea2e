"""Puts: the capacity of the queue, the default expiry, the insert, and the clients that wait for such a job.

Whether a queue with ``max_jobs`` has room for one more job is known by counts that are not made for each put. A count
reads as many index entries as the queue has jobs, up to the limit. So one count serves the puts of a second, or of ten
times as long as it took: what this process puts and ends meanwhile is added to it, what other processes do is not
known. Where the queue seems to be full, the put waits for the ends of jobs that this process is writing; then the jobs
are counted anew, but counting takes a tenth of the time at most. So a queue may exceed its limit by what other
processes put between two counts, and a put may be refused although others have just made room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from time import monotonic
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.config.settings import QueueSettings
from peerd.domain.task import SPAN_LIMIT, NewTask
from peerd.gateway.group_commit import Callback, OperationFailed, OperationQueue
from peerd.gateway.operations import Put, StoreQuery
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.tubes import Tubes
from peerd.gateway.waiting import QueueClient
from peerd.store.enqueue import Enqueued
from peerd.store.jobs.statistics import count_unfinished_up_to

NO_OPTIONS: Final = QueueSettings()
VALID_FOR: Final = 1.0
"""Seconds for which a count is used while there is room."""
LEAST_PAUSE: Final = 10.0
"""Least time between two counts, as a multiple of the time that one has taken."""


# ---------------------------------------------------------------- capacity


class Admission(Enum):
    """Whether a queue has room for a put."""

    ADMITTED = "admitted"
    FULL = "full"
    UNKNOWN = "unknown"
    """The jobs must be counted, or ends must be written, before it is known; then the put asks again."""


class QueueCapacities:
    """The capacity of all queues that have a limit.

    Args:
        most: unfinished jobs at the most, by queue.
        clock: monotonic seconds.

    >>> now = [0.0]
    >>> capacities = QueueCapacities({"mails": 3}, lambda: now[0])
    >>> capacities.admit("other").name, capacities.admit("mails").name
    ('ADMITTED', 'UNKNOWN')
    >>> capacities.record("mails", 1, took=0.002)
    >>> [capacities.admit("mails").name for _ in range(3)]
    ['ADMITTED', 'ADMITTED', 'FULL']
    >>> now[0] = 0.03
    >>> capacities.admit("mails").name
    'UNKNOWN'
    """

    def __init__(self, most: Mapping[str, int], clock: Callable[[], float]) -> None:
        self._most = dict(most)
        self._clock = clock
        self._jobs: dict[str, int] = {}
        """The last count of each queue, changed by what this process has done since."""
        self._valid_until: dict[str, float] = {}
        self._no_count_before: dict[str, float] = {}
        self._pending_ends = 0
        """Operations of this process that may each end a job of any queue."""

    def most(self, queue: str) -> int | None:
        """The limit of a queue."""
        return self._most.get(queue)

    def is_unknown(self, queue: str) -> bool:
        """Whether a put into a queue must wait before it is known if there is room."""
        if queue not in self._most:
            return False
        return self.must_count(queue) or (self._pending_ends > 0 and self._jobs[queue] >= self._most[queue])

    def must_count(self, queue: str) -> bool:
        """Whether the jobs of a queue with a limit must be counted before it is known if there is room."""
        now = self._clock()
        if now >= self._valid_until.get(queue, now):
            return True
        return self._jobs[queue] >= self._most[queue] and now >= self._no_count_before[queue]

    def admit(self, queue: str, *, after_ends: bool = False) -> Admission:
        """Whether one more job may be put into a queue. One that is admitted is counted.

        Args:
            queue: its name.
            after_ends: the put has waited for the ends before it; it does not wait for later ones too.
        """
        if queue not in self._most:
            return Admission.ADMITTED
        if self.must_count(queue) if after_ends else self.is_unknown(queue):
            return Admission.UNKNOWN
        if self._jobs[queue] >= self._most[queue]:
            return Admission.FULL
        self._jobs[queue] += 1
        return Admission.ADMITTED

    def record(self, queue: str, jobs: int, took: float) -> None:
        """Use a count from now on, which has taken so many seconds."""
        now = self._clock()
        self._jobs[queue] = jobs
        self._no_count_before[queue] = now + LEAST_PAUSE * took
        self._valid_until[queue] = now + max(VALID_FOR, LEAST_PAUSE * took)

    def begin_end(self) -> None:
        """Take note that an operation was submitted which may end a job."""
        self._pending_ends += 1

    def finish_end(self) -> None:
        """Take note that such an operation is written, or was refused."""
        self._pending_ends -= 1

    def leave(self, queue: str) -> None:
        """Count a job less: this process has deleted it, or has not put what was admitted."""
        if self._jobs.get(queue):
            self._jobs[queue] -= 1


def count_for_capacity(connection: Connection, queue: str, most: int) -> tuple[int, float]:
    """The unfinished jobs of a queue, up to the limit, and the seconds that counting them has taken."""
    began = monotonic()
    return count_unfinished_up_to(connection, queue, most), monotonic() - began


def wait_for_ends(_: Connection) -> None:
    """Do nothing, at the place of a count among the operations: those before it are written then."""


# ---------------------------------------------------------------- puts


class Puts:
    """Inserts the jobs of queue clients.

    Args:
        operations: of the process.
        ready: announces each job.
        tubes: their counters.
        queues: the sections ``[queues.NAME]``.
    """

    def __init__(
        self, operations: OperationQueue, ready: ReadyJobs, tubes: Tubes, queues: Mapping[str, QueueSettings]
    ) -> None:
        self.total = 0
        most = {name: queue.max_jobs for name, queue in queues.items() if queue.max_jobs is not None}
        self.capacities = QueueCapacities(most, asyncio.get_running_loop().time)
        self._operations = operations
        self._ready = ready
        self._tubes = tubes
        self._queues = queues
        self._waiting_for_count: dict[str, list[tuple[Callable[[], None], Callback]]] = {}

    def put(self, client: QueueClient, job: NewTask, callback: Callback, *, after_ends: bool = False) -> None:
        """Insert a job; the result is `Enqueued`, or `Admission.FULL`; for `after_ends` see `QueueCapacities.admit`."""
        match self.capacities.admit(job.queue, after_ends=after_ends):
            case Admission.ADMITTED:
                self._insert(client, job, callback)
            case Admission.FULL as full:
                callback(full)
            case Admission.UNKNOWN:
                self._put_after_count(job.queue, partial(self.put, client, job, callback, after_ends=True), callback)

    def _put_after_count(self, queue: str, put: Callable[[], None], callback: Callback) -> None:
        """Put when all operations so far are written, and the jobs of a queue counted if they must be, once for all."""
        waiting = self._waiting_for_count.setdefault(queue, [])
        waiting.append((put, callback))
        if len(waiting) == 1:
            query = StoreQuery(wait_for_ends)
            if self.capacities.must_count(queue):
                query = StoreQuery(count_for_capacity, (queue, self.capacities.most(queue)))
            self._operations.submit_last(query, partial(self._counted, queue))

    def _counted(self, queue: str, result: tuple[int, float] | OperationFailed | None) -> None:
        waiting = self._waiting_for_count.pop(queue)
        if isinstance(result, tuple):
            self.capacities.record(queue, *result)
        for put, callback in waiting:
            if isinstance(result, OperationFailed):
                callback(result)
            else:
                put()

    def _insert(self, client: QueueClient, job: NewTask, callback: Callback) -> None:
        job = self._with_expiry(job)
        self._operations.submit(client, Put(job), partial(self._inserted, job, callback))
        if not job.start_in:
            self._ready.offer(client, job.queue, is_certain=job.unique_key is None)

    def _with_expiry(self, job: NewTask) -> NewTask:
        """A job that expires after the time of its queue, unless it says otherwise."""
        expires_in = self._queues.get(job.queue, NO_OPTIONS).expire_after
        if expires_in is None or job.finish_in is not None or job.finish_at is not None:
            return job
        finish_in = expires_in + (job.start_in or 0.0)
        return msgspec.structs.replace(job, finish_in=finish_in) if finish_in < SPAN_LIMIT else job

    def _inserted(self, job: NewTask, callback: Callback, result: Enqueued | OperationFailed) -> None:
        if isinstance(result, Enqueued) and result.created:
            self.total += 1
            self._tubes.get_or_create(job.queue).puts += 1
            if job.start_in:
                self._ready.expect(job.start_in)
            else:
                self._ready.add(job.queue)
        else:
            self.capacities.leave(job.queue)
        callback(result)
