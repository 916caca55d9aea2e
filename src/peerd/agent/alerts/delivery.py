"""From the master's alerts to the hooks: each hook has its own rate limit, queue and retries, and delays no other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from peerd.agent.alerts.hooks import AlertHook, make_hook
from peerd.agent.alerts.recorder import alert_of
from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.config.settings import AlertSettings
from peerd.domain.alert import Alert, AlertKind, AlertRateLimiter
from peerd.domain.pacing import exponential_backoff
from peerd.runtime.observability.events import AlertDeliveryFailed, EventBus
from peerd.runtime.observability.log_messages import alerts_dropped
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.shell.process_shell import ProcessShell

MAX_QUEUED: Final = 100
"""Alerts that wait for one hook; beyond it the oldest are dropped."""
MAX_TRIES: Final = 8
FIRST_PAUSE: Final = 1.0
"""Seconds; doubled after each try, so that the last is about two minutes after the first."""
FLUSH_WITHIN: Final = 2.0
"""Seconds that a stopping agent gives to the last alerts."""


class AlertDispatcher(Subsystem):
    """Offers the master's alerts to each enabled hook; commands are started in the project's folder."""

    def __init__(self, alerts: Mapping[str, AlertSettings], folder: Path) -> None:
        self._settings = {name: settings for name, settings in alerts.items() if settings.enabled}
        self._folder = folder
        self._deliveries: dict[str, AlertDelivery] = {}

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Start a component for each hook."""
        self._node = shell.link.node
        self._components = components
        for name, settings in self._settings.items():
            self._deliveries[f"alerts {name}"] = delivery = AlertDelivery(
                name,
                make_hook(settings, self._folder, shell.events),
                frozenset(AlertKind if settings.on is None else settings.on),
                AlertRateLimiter(settings.at_most),
                shell.events,
                asyncio.get_running_loop().time,
            )
            components.start(f"alerts {name}", delivery.run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a message of type `alert`."""
        alert = alert_of(message, self._node)
        if alert is not None:
            for delivery in self._deliveries.values():
                delivery.offer(alert)

    async def stop(self, grace: float) -> None:
        """Send what is queued or suppressed, and end."""
        for delivery in self._deliveries.values():
            delivery.flush_suppressed()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WITHIN):
                for delivery in self._deliveries.values():
                    await delivery.idle.wait()
        if self._deliveries:
            await self._components.stop(self._deliveries, within=FLUSH_WITHIN)


@dataclass(eq=False)
class AlertDelivery:
    """Delivers alerts to one hook."""

    name: str
    hook: AlertHook
    kinds: Container[str]
    """Those that are sent."""
    limit: AlertRateLimiter
    """How many of each kind are sent."""
    events: EventBus
    clock: Callable[[], float]
    """Monotonic, in seconds."""

    def __post_init__(self) -> None:
        self._queue: deque[Alert] = deque()
        self._suppressed: dict[str, Alert] = {}
        """The latest suppressed alert of each kind, until the rate allows to send it."""
        self._changed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while the queue is empty and nothing is being sent."""
        self.idle.set()

    def offer(self, alert: Alert) -> None:
        """Queue an alert of the hook's kinds; beyond the rate, the latest follows later with the number of others."""
        if alert.alert not in self.kinds and alert.alert != AlertKind.TEST:
            return
        now = self.clock()
        suppressed = self.limit.admit(alert.alert, now)
        if suppressed is not None:
            self._suppressed.pop(alert.alert, None)
            self._enqueue(alert, suppressed)
            return
        if alert.alert not in self._suppressed:
            wait = self.limit.wait(alert.alert, now)
            asyncio.get_running_loop().call_later(wait, self._send_suppressed, alert.alert)
        self._suppressed[alert.alert] = alert

    def flush_suppressed(self) -> None:
        """Queue the suppressed alerts now."""
        for kind in tuple(self._suppressed):
            self._send_suppressed(kind)

    def _send_suppressed(self, kind: str) -> None:
        alert = self._suppressed.pop(kind, None)
        if alert is not None:
            self._enqueue(alert, self.limit.release(kind, self.clock()))

    def _enqueue(self, alert: Alert, suppressed: int) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self._queue.popleft()
            self.events.emit(alerts_dropped(self.name, count=1))
        self._queue.append(msgspec.structs.replace(alert, suppressed=alert.suppressed + suppressed))
        self._changed.set()
        self.idle.clear()

    async def run(self) -> None:
        """Deliver one alert after the other, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._queue:
                await self._deliver(self._queue.popleft())
            self.idle.set()

    async def _deliver(self, alert: Alert) -> None:
        for number in range(1, MAX_TRIES + 1):
            pause = exponential_backoff(number, base=FIRST_PAUSE) if number < MAX_TRIES else None
            try:
                await self.hook.send(alert)
                return
            except Exception as error:  # noqa: BLE001 - whatever a server or a program makes of it
                text = describe_exception(error)
            self.events.emit(AlertDeliveryFailed(hook=self.name, alert=alert.alert, error=text, again_in=pause))
            await asyncio.sleep(pause or 0.0)
