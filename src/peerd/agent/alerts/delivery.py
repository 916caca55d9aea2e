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
from peerd.runtime.observability.events import AlertDelayed, AlertsDropped, Events
from peerd.runtime.process.uncaught_exceptions import words

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
        self._held: dict[str, Alert] = {}
        """The latest of each kind that was held back and has to be told yet."""
        self._changed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing waits."""
        self.idle.set()

    def offer(self, alert: Alert) -> None:
        """Take an alert, if the hook wants it; what is too much of its kind is told together when its time is over."""
        if alert.alert not in self._kinds and alert.alert != AlertKind.TEST:
            return
        now = self._clock()
        held = self._limit.admit(alert.alert, now)
        if held is None:
            self._hold(alert, now)
        else:
            self._held.pop(alert.alert, None)
            self._take(alert, held)

    def offer_what_is_held(self) -> None:
        """Take what was held back now: there will be no later."""
        for kind in tuple(self._held):
            self._release(kind)

    def _hold(self, alert: Alert, now: float) -> None:
        is_waited_for = alert.alert in self._held
        self._held[alert.alert] = alert
        if not is_waited_for:
            asyncio.get_running_loop().call_later(self._limit.wait(alert.alert, now), self._release, alert.alert)

    def _release(self, kind: str) -> None:
        """The time of a kind is over: take the latest that was held back, with the number of the others."""
        alert = self._held.pop(kind, None)
        if alert is not None:
            self._take(alert, self._limit.release(kind, self._clock()))

    def _take(self, alert: Alert, held: int) -> None:
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
