"""Sending a test alert by each hook."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from peerd.agent.alert_delivery import make_hook
from peerd.config import Settings
from peerd.domain.alert import Alert, AlertKind
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_output import LogEventListener, configure_logging
from peerd.runtime.process.uncaught_exceptions import describe_exception


async def test_hooks(settings: Settings) -> dict[str, str | None]:
    """The error of each enabled hook, or None."""
    log = configure_logging(settings.logging.level, settings.logging.format, node=settings.node.name)
    events = EventBus(LogEventListener(log))
    text = "this is a test: alerts of this node arrive here"
    alert = Alert(alert=AlertKind.TEST.value, text=text, node=settings.node.name, at=datetime.now(UTC))
    hooks = {name: hook for name, hook in settings.alerts.items() if hook.enabled}
    results = await asyncio.gather(
        *(make_hook(hook, settings.project_directory, events)(alert) for hook in hooks.values()),
        return_exceptions=True,
    )
    errors = [None if result is None else describe_exception(result) for result in results]
    return dict(zip(hooks, errors, strict=True))
