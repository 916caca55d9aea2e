"""Outages of the database: reported once at the begin and once at the end, and waited out with a growing pause."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from peerd.domain.backoff import Backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import DatabaseOutageEnded, DatabaseOutageStarted, EventBus

T = TypeVar("T")


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
