"""The way of alerts to one hook: how many, in what order, and again when it fails. A dead hook harms nothing else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container
from typing import Final

import msgspec

from peerd.agent.alerts.hooks import AlertHook
from peerd.domain.alert import Alert, AlertKind, AlertRateLimiter
from peerd.domain.backoff import exponential_backoff
from peerd.runtime.observability.events import AlertDeliveryFailed, AlertsDropped, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception

MAX_QUEUED: Final = 100
"""Alerts that wait for one hook; beyond it the oldest are dropped."""
MAX_TRIES: Final = 8
FIRST_PAUSE: Final = 1.0
"""Seconds; doubled after each try, so that the last is about two minutes after the first."""


class AlertDelivery:
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
        hook: AlertHook,
        kinds: Container[str],
        limit: AlertRateLimiter,
        events: EventBus,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.hook = hook
        self._kinds = kinds
        self._limit = limit
        self._events = events
        self._clock = clock
        self._queue: deque[Alert] = deque()
        self._suppressed: dict[str, Alert] = {}
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
        suppressed = self._limit.admit(alert.alert, now)
        if suppressed is None:
            self._suppress(alert, now)
        else:
            self._suppressed.pop(alert.alert, None)
            self._enqueue(alert, suppressed)

    def flush_suppressed(self) -> None:
        """Take what was held back now: there will be no later."""
        for kind in tuple(self._suppressed):
            self._send_suppressed(kind)

    def _suppress(self, alert: Alert, now: float) -> None:
        is_pending = alert.alert in self._suppressed
        self._suppressed[alert.alert] = alert
        if not is_pending:
            asyncio.get_running_loop().call_later(
                self._limit.wait(alert.alert, now), self._send_suppressed, alert.alert
            )

    def _send_suppressed(self, kind: str) -> None:
        """The time of a kind is over: take the latest that was held back, with the number of the others."""
        alert = self._suppressed.pop(kind, None)
        if alert is not None:
            self._enqueue(alert, self._limit.release(kind, self._clock()))

    def _enqueue(self, alert: Alert, suppressed: int) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self._queue.popleft()
            self._events.emit(AlertsDropped(hook=self.name, count=1))
        self._queue.append(msgspec.structs.replace(alert, suppressed=alert.suppressed + suppressed))
        self._changed.set()
        self.idle.clear()

    async def run(self) -> None:
        """Deliver, one after the other, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._queue:
                await self._deliver(self._queue.popleft())
            self.idle.set()

    async def _deliver(self, alert: Alert) -> None:
        for number in range(1, MAX_TRIES + 1):
            try:
                await self.hook.send(alert)
                break
            except Exception as error:  # noqa: BLE001 - whatever a server or a program makes of it
                pause = exponential_backoff(number, base=FIRST_PAUSE) if number < MAX_TRIES else None
                self._events.emit(
                    AlertDeliveryFailed(
                        hook=self.name, alert=alert.alert, error=describe_exception(error), again_in=pause
                    )
                )
            if pause is not None:
                await asyncio.sleep(pause)
