"""Whether queues with ``max_jobs`` have room for one more job, by counts that are not made for each put.

A count reads as many index entries as the queue has jobs, up to the limit. So one count serves the puts of a second, or
of ten times as long as it took: what this process puts and ends meanwhile is added to it, what other processes do is
not known. Where the queue seems to be full, the put waits for the ends of jobs that this process is writing; then the
jobs are counted anew, but counting takes a tenth of the time at most. So a queue may exceed its limit by what other
processes put between two counts, and a put may be refused although others have just made room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from time import monotonic
from typing import Final

from sqlalchemy.engine import Connection

from peerd.store import jobs

VALID_FOR: Final = 1.0
"""Seconds for which a count is used while there is room."""
LEAST_PAUSE: Final = 10.0
"""Least time between two counts, as a multiple of the time that one has taken."""


class Admission(Enum):
    """The answer to a put."""

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
        """Operations of this process, each of which may end a job of any queue."""

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
        """An operation was submitted that may end a job."""
        self._pending_ends += 1

    def finish_end(self) -> None:
        """That operation is written, or was refused."""
        self._pending_ends -= 1

    def leave(self, queue: str) -> None:
        """Count a job less: this process has deleted it, or has not put what was admitted."""
        if self._jobs.get(queue):
            self._jobs[queue] -= 1


def count_for_capacity(connection: Connection, queue: str, most: int) -> tuple[int, float]:
    """The unfinished jobs of a queue, up to the limit, and the seconds that counting them has taken."""
    began = monotonic()
    return jobs.count_unfinished_up_to(connection, queue, most), monotonic() - began


def wait_for_ends(_: Connection) -> None:
    """The same place among the operations as a count, without one: those before it are written."""
