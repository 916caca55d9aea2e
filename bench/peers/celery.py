"""Celery, on Redis or on a SQL database (SQLAlchemy transport); threads, no results, otherwise its defaults.

Threads, since with processes there would be more than one worker process. It acknowledges a task before it runs it.
"""

from __future__ import annotations

from celery import Celery
from kombu import Connection

from bench.peers import contract


class Measured(contract.PeerQueue):
    """Celery."""

    distribution = "celery"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        broker = url if url.startswith("redis") else f"sqla+{url}"
        self._app = Celery("bench", broker=broker)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_retry_on_startup=True,
            worker_hijack_root_logger=False,
        )
        self._noop = self._app.task(name="noop")(contract.noop)
        self._note = self._app.task(name="note")(contract.note)

    def prepare(self) -> None:
        """Empty the queue."""
        self._noop.delay()
        self._app.control.purge()

    def enqueue_singly(self, number: int) -> None:
        """`delay`, again and again."""
        for _ in range(number):
            self._noop.delay()

    def enqueue_together(self, number: int) -> None:
        """All over one producer; it has no call that sends many at once."""
        with self._app.producer_or_acquire() as producer:
            for _ in range(number):
                self._noop.apply_async(producer=producer)

    def enqueue_note(self, number: int) -> None:
        """`delay`."""
        self._note.delay(number)

    def left(self) -> int:
        """What is in its queue."""
        with Connection(self._app.conf.broker_url) as connection:
            return int(connection.default_channel.queue_declare("celery", passive=False).message_count)

    def work(self, at_once: int) -> None:
        """Its worker with threads."""
        self._app.worker_main(["worker", "--pool=threads", f"--concurrency={at_once}", "--loglevel=ERROR"])
