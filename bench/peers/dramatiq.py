"""Dramatiq on Redis: one worker with threads, in one process (its program would start several)."""

from __future__ import annotations

import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import contract


class Measured(contract.PeerQueue):
    """Dramatiq."""

    distribution = "dramatiq"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._broker = RedisBroker(url=url)
        dramatiq.set_broker(self._broker)
        self._noop = dramatiq.actor(contract.noop, actor_name="noop")
        self._note = dramatiq.actor(contract.note, actor_name="note")

    def prepare(self) -> None:
        """Empty the store."""
        self._broker.flush_all()

    def enqueue_singly(self, number: int) -> None:
        """`send`, again and again."""
        for _ in range(number):
            self._noop.send()

    def enqueue_together(self, number: int) -> None:
        """A group of messages."""
        dramatiq.group(self._noop.message() for _ in range(number)).run()

    def enqueue_note(self, number: int) -> None:
        """`send`."""
        self._note.send(number)

    def left(self) -> int:
        """Messages that are queued, or taken and not acknowledged."""
        return int(self._broker.do_qsize("default"))

    def work(self, at_once: int) -> None:
        """Its worker; prefetching as by default."""
        dramatiq.Worker(self._broker, worker_threads=at_once).start()
        while True:
            time.sleep(60)
