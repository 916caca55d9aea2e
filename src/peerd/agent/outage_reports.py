"""Reports an outage of the database that lasts: a failover of some seconds needs no person."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from peerd.runtime.observability.events import (
    DatabaseAway,
    DatabaseBack,
    DatabaseOutageEnded,
    DatabaseOutageStarted,
    Event,
    EventBus,
)

REPORT_AFTER: Final = 15.0
"""Seconds."""


class OutageReporter:
    """Listens to an agent's events: emits `DatabaseAway` when an outage has lasted, and `DatabaseBack` at its end."""

    def __init__(self, events: EventBus, after: float = REPORT_AFTER) -> None:
        self._events = events
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_reported = False

    def accepts(self, kind: type[Event]) -> bool:
        """Whether it listens to events of a kind."""
        return kind in {DatabaseOutageStarted, DatabaseOutageEnded}

    def __call__(self, event: Event) -> None:
        """Take an event, on whatever thread it was emitted."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        match event:
            case DatabaseOutageStarted() if self._timer is None:
                self._timer = self._loop.call_later(self._after, self._report, event.reason)
            case DatabaseOutageEnded():
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if self._is_reported:
                    self._is_reported = False
                    self._events.emit(DatabaseBack(seconds=event.seconds))

    def _report(self, reason: str) -> None:
        self._is_reported = True
        self._events.emit(DatabaseAway(seconds=self._after, reason=reason))
