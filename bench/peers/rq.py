"""RQ on Redis: its SimpleWorker, which runs one job after the other in the worker process.

Its default worker forks for each job, and a worker runs one job at a time: ``at_once`` means nothing to it.
"""

from __future__ import annotations

from redis import Redis
from rq import Queue
from rq.worker import SimpleWorker

from bench.peers import contract


class Measured(contract.PeerQueue):
    """RQ."""

    distribution = "rq"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._redis = Redis.from_url(url)
        self._queue = Queue("bench", connection=self._redis)

    def prepare(self) -> None:
        """Empty the store."""
        self._redis.flushdb()

    def enqueue_singly(self, number: int) -> None:
        """`enqueue`, again and again."""
        for _ in range(number):
            self._queue.enqueue(contract.noop)

    def enqueue_together(self, number: int) -> None:
        """`enqueue_many`, a thousand at a time."""
        for done in range(0, number, 1000):
            self._queue.enqueue_many([Queue.prepare_data(contract.noop) for _ in range(min(1000, number - done))])

    def enqueue_note(self, number: int) -> None:
        """`enqueue`."""
        self._queue.enqueue(contract.note, number)

    def left(self) -> int:
        """Jobs that are queued or started."""
        return int(self._queue.count) + int(self._queue.started_job_registry.count)

    def work(self, at_once: int) -> None:
        """Its simple worker."""
        SimpleWorker([self._queue], connection=self._redis).work(logging_level="WARNING")
