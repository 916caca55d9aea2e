"""Outages of the database: reported once at the begin and once at the end, and waited out with a growing pause."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import DatabaseOutageEnded, DatabaseOutageStarted, EventBus

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to reach a database that is away."""


class Backoff:
    """Pauses between attempts, in seconds: doubled each time up to the longest, and spread by half.

    >>> pauses = Backoff(first=1.0, longest=4.0)
    >>> all(mean / 2 <= pauses.next() <= mean * 1.5 for mean in (1.0, 2.0, 4.0, 4.0))
    True
    """

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = min(first, longest)
        self._longest = longest
        self._next = self._first

    def next(self) -> float:
        """The next pause, in seconds."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return pause * random.uniform(0.5, 1.5)

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._next = self._first


class OutageTracker:
    """Whether this process can reach the database; emits an event at each change. Thread-safe."""

    def __init__(self, events: EventBus, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None

    def lost(self, error: DatabaseUnavailable) -> None:
        """Record an attempt that failed."""
        with self._lock:
            known, self._since = self._since, self._since or self._clock()
        if known is None:
            self._events.emit(DatabaseOutageStarted(reason=error.reason))

    def found(self) -> None:
        """Record an attempt that succeeded."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            self._events.emit(DatabaseOutageEnded(seconds=self._clock() - since))

    async def retry_while_down(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt until the database answers."""
        pauses = Backoff()
        while True:
            try:
                result = await attempt()
            except DatabaseUnavailable as error:
                self.lost(error)
                await asyncio.sleep(pauses.next())
            else:
                self.found()
                return result
