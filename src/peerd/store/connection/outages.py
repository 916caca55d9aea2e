"""Times in which the database does not answer: said once when they begin and once when they end, and outlasted."""

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
    """Whether the database is away, as this process sees it; says so once when it goes and once when it is back.

    Args:
        events: where it says so.
        clock: the machine's monotonic clock, in seconds; the event loop's own ``time``.
    """

    def __init__(self, events: EventBus, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None

    def lost(self, error: DatabaseUnavailable) -> None:
        """It did not answer. Called from the event loop and from the touch thread."""
        with self._lock:
            known, self._since = self._since, self._since or self._clock()
        if known is None:
            self._events.emit(DatabaseOutageStarted(reason=error.reason))

    def found(self) -> None:
        """It answered."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            self._events.emit(DatabaseOutageEnded(seconds=self._clock() - since))

    async def retry_while_down(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the database answers, with pauses that grow and are spread."""
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
