"""The part of the agent that hears of alerts and gives them to the hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from peerd.agent.alerts.delivery import AlertDelivery
from peerd.agent.components import ComponentSupervisor
from peerd.domain.alert import Alert
from peerd.runtime.process.link import Link

FLUSH_WITHIN: Final = 2.0
"""Seconds that a stopping agent leaves to the last alerts."""

MakeAlertDeliveries = Callable[[], Sequence[AlertDelivery]]


class AlertDispatcher:
    """Takes the master's frames of type `alert`.

    Args:
        make_deliveries: makes a delivery for each hook, on the event loop.
    """

    def __init__(self, make_deliveries: MakeAlertDeliveries) -> None:
        self._make_deliveries = make_deliveries
        self._deliveries: Sequence[AlertDelivery] = ()
        self._component_names: list[str] = []

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Begin to deliver."""
        self._node = link.node
        self._components = components
        self._deliveries = self._make_deliveries()
        for delivery in self._deliveries:
            self._component_names.append(f"alerts {delivery.name}")
            components.start(self._component_names[-1], delivery.run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Offer an alert to every hook."""
        if message.get("type") != "alert":
            return
        alert = Alert(
            alert=str(message.get("alert")),
            text=str(message.get("text")),
            node=self._node,
            at=datetime.now(UTC),
            slot=message.get("slot"),
            pid=message.get("pid"),
            data=dict(message.get("data") or {}),
        )
        for delivery in self._deliveries:
            delivery.offer(alert)

    async def stop(self, grace: float) -> None:
        """Let the last ones out."""
        for delivery in self._deliveries:
            delivery.flush_suppressed()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WITHIN):
                for delivery in self._deliveries:
                    await delivery.idle.wait()
        names, self._component_names = self._component_names, []
        if names:
            await self._components.stop(names, within=FLUSH_WITHIN)
