"""The way of alerts to one hook: how many, in what order, and again when it fails. A dead hook harms nothing else."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Container
from typing import Final

import msgspec

from peerd.agent.alerts.hooks import Hook
from peerd.domain.alert import Alert, AlertKind, RateLimit
from peerd.domain.backoff import exponential
from peerd.runtime.events import AlertDelayed, AlertsDropped, Events
from peerd.runtime.faults import words

ROOM: Final = 100
"""Alerts that wait for one hook; beyond it the oldest are dropped."""
TRIES: Final = 8
FIRST_PAUSE: Final = 1.0
"""Seconds; doubled after each try, so that the last is about two minutes after the first."""


class Delivery:
    """Delivers to one hook.

    Args:
        name: of the hook.
        hook: the way out.
        kinds: those that it wants.
        limit: how many of each it wants.
        events: what goes wrong.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        name: str,
        hook: Hook,
        kinds: Container[str],
        limit: RateLimit,
        events: Events,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.hook = hook
        self._kinds = kinds
        self._limit = limit
        self._events = events
        self._clock = clock
        self._waiting: deque[Alert] = deque()
        self._changed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing waits."""
        self.idle.set()

    def offer(self, alert: Alert) -> None:
        """Take an alert, if the hook wants it and has not had too many of its kind."""
        if alert.alert not in self._kinds and alert.alert != AlertKind.TEST:
            return
        held = self._limit.admit(alert.alert, self._clock())
        if held is None:
            return
        if len(self._waiting) >= ROOM:
            self._waiting.popleft()
            self._events.emit(AlertsDropped(hook=self.name, count=1))
        self._waiting.append(msgspec.structs.replace(alert, suppressed=alert.suppressed + held))
        self._changed.set()
        self.idle.clear()

    async def run(self) -> None:
        """Deliver, one after the other, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                await self._deliver(self._waiting.popleft())
            self.idle.set()

    async def _deliver(self, alert: Alert) -> None:
        for number in range(1, TRIES + 1):
            try:
                await self.hook.send(alert)
                break
            except Exception as error:  # noqa: BLE001 - whatever a server or a program makes of it
                pause = exponential(number, base=FIRST_PAUSE, random=random.random) if number < TRIES else None
                self._events.emit(AlertDelayed(hook=self.name, alert=alert.alert, error=words(error), again_in=pause))
            if pause is not None:
                await asyncio.sleep(pause)
