"""What Huey's two stores have in common."""

from __future__ import annotations

from typing import Any

from bench.peers import contract


class HueyPeer(contract.PeerQueue):
    """Huey on a store. It has no call that enqueues many at once."""

    distribution = "huey"

    def __init__(self, url: str, huey: Any) -> None:
        super().__init__(url)
        self._huey = huey
        self._noop = huey.task(name="noop")(contract.noop)
        self._note = huey.task(name="note")(contract.note)

    def prepare(self) -> None:
        """Its storage made the tables."""
        self._huey.flush()

    def enqueue_singly(self, number: int) -> None:
        """By calling the task."""
        for _ in range(number):
            self._noop()

    def enqueue_together(self, number: int) -> None:
        """One by one."""
        self.enqueue_singly(number)

    def enqueue_note(self, number: int) -> None:
        """By calling the task."""
        self._note(number)

    def left(self) -> int:
        """What is in its queue; a task leaves it when a worker takes it."""
        return int(self._huey.pending_count())

    def work(self, at_once: int) -> None:
        """The consumer with threads; its other settings are the defaults."""
        self._huey.create_consumer(workers=at_once, worker_type="thread").run()
