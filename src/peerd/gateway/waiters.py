"""The clients whose reserves have no answer, and which of them may get a job now. One new job wakes one of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from peerd.gateway.clients import QueueClient

MAX_ATTEMPTS: Final = 64
"""Clients that attempt to reserve at once after a ring that does not say how many jobs there are."""
UNKNOWN_NUMBER: Final = float("inf")


class Waiters:
    """The waiting clients by tube, in the order in which they began to wait; and the jobs that may be ready."""

    def __init__(self) -> None:
        self.newest = 0
        """The number of the client that was added last."""
        self._by_tube: dict[str, dict[QueueClient, None]] = {}
        self._ready: dict[str, float] = {}
        """Jobs that may be ready in tubes with waiting clients."""

    def __bool__(self) -> bool:
        return bool(self._by_tube)

    def count(self, tube: str) -> int:
        """How many clients wait for a job of this tube."""
        return len(self._by_tube.get(tube, ()))

    @property
    def total(self) -> int:
        """How many clients wait."""
        return len({client for clients in self._by_tube.values() for client in clients})

    def add(self, client: QueueClient) -> None:
        """Add a client behind all others."""
        self.remove(client)
        self.newest += 1
        client.number = self.newest
        client.waits_on = client.watched
        for tube in client.waits_on:
            self._by_tube.setdefault(tube, {})[client] = None

    def remove(self, client: QueueClient) -> None:
        """Remove a client that has its answers, or has gone."""
        for tube in client.waits_on:
            clients = self._by_tube.get(tube)
            if clients is not None:
                clients.pop(client, None)
                if not clients:
                    del self._by_tube[tube]
                    self._ready.pop(tube, None)
        client.number = 0
        client.waits_on = ()

    def wake(self, tube: str, jobs: float = UNKNOWN_NUMBER) -> None:
        """Note that so many jobs of a tube may be ready."""
        if tube in self._by_tube:
            self._ready[tube] = self._ready.get(tube, 0.0) + jobs

    def wake_all(self) -> None:
        """Note that any job may be ready."""
        for tube in self._by_tube:
            self.wake(tube)

    def longest_waiting(self, tube: str, first: int, last: int, newest: int) -> list[QueueClient]:
        """The clients of a tube from a place to before another one, up to the one with this number."""
        return [client for client in islice(self._by_tube.get(tube, ()), first, last) if client.number <= newest]

    @property
    def has_woken(self) -> bool:
        """Whether a client may get a job and does not attempt to yet."""
        return any(next(self._idle(tube), None) is not None for tube in self._ready)

    def take_woken(self) -> tuple[list[QueueClient], dict[str, float]]:
        """The clients that attempt to reserve now, the oldest first, and the jobs that they were woken for.

        A tube stays woken while all its clients attempt already: their attempts may be older than the job.
        """
        chosen: set[QueueClient] = set()
        woken: dict[str, float] = {}
        for tube, ready in list(self._ready.items()):
            first = list(islice(self._idle(tube), int(min(ready, MAX_ATTEMPTS))))
            if first:
                woken[tube] = self._ready.pop(tube)
                chosen.update(first)
        return sorted(chosen, key=lambda client: client.number), woken

    def _idle(self, tube: str) -> Iterator[QueueClient]:
        return (client for client in self._by_tube[tube] if not client.is_attempting)
