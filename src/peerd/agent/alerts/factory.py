"""[alerts.NAME] of peerd.toml becomes a hook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from peerd.agent.alerts.delivery import AlertDelivery
from peerd.agent.alerts.hooks import AlertHook, CommandHook, LogHook, MailHook, Webhook
from peerd.config.settings import AlertSettings, MailSettings
from peerd.domain.alert import AlertKind, AlertRateLimiter
from peerd.runtime.observability.events import EventBus


def make_hook(settings: AlertSettings, folder: Path, events: EventBus) -> AlertHook:
    """The way out that a section names.

    Args:
        settings: the section.
        folder: the project's, in which commands are started.
        events: for the log.
    """
    if settings.webhook is not None:
        return Webhook(settings.webhook)
    if settings.mail is not None:
        return _make_mail_hook(settings.mail)
    if settings.command is not None:
        return CommandHook(settings.command, folder)
    return LogHook(events)


def make_deliveries(alerts: Mapping[str, AlertSettings], folder: Path, events: EventBus) -> list[AlertDelivery]:
    """A delivery for each enabled hook, on the event loop that runs now."""
    clock = asyncio.get_running_loop().time
    return [
        AlertDelivery(
            name,
            make_hook(settings, folder, events),
            frozenset(AlertKind if settings.on is None else settings.on),
            AlertRateLimiter(settings.at_most),
            events,
            clock,
        )
        for name, settings in alerts.items()
        if settings.enabled
    ]


def _make_mail_hook(settings: MailSettings) -> MailHook:
    return MailHook(
        settings.host_and_port,
        settings.tls,
        settings.sender,
        settings.to,
        settings.user,
        settings.password_file,
    )
