"""Times in which the database does not answer: said once when they begin and once when they end, and outlasted."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from peerd.domain.errors import DatabaseAway
from peerd.runtime.events import DatabaseFound, DatabaseLost, Events

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two looks for a database that is away."""


class Outages:
    """Whether the database is away, as this process sees it; says so once when it goes and once when it is back.

    Args:
        events: where it says so.
        clock: the machine's monotonic clock, in seconds; the event loop's own ``time``.
    """

    def __init__(self, events: Events, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None

    def lost(self, error: DatabaseAway) -> None:
        """It did not answer. Called from the event loop and from the touch thread."""
        with self._lock:
            known, self._since = self._since, self._since or self._clock()
        if known is None:
            self._events.emit(DatabaseLost(reason=error.reason))

    def found(self) -> None:
        """It answered."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            self._events.emit(DatabaseFound(seconds=self._clock() - since))

    async def outlast(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the database answers, with pauses that grow and are spread."""
        pause = FIRST_PAUSE
        while True:
            try:
                result = await attempt()
            except DatabaseAway as error:
                self.lost(error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self.found()
                return result
