"""[alerts.NAME] of peerd.toml becomes a hook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from peerd.agent.alerts.delivery import Delivery
from peerd.agent.alerts.hooks import Command, Hook, LogHook, Mail, Webhook
from peerd.config.settings import AlertSettings, MailSettings
from peerd.domain.alert import AlertKind, RateLimit
from peerd.runtime.observability.events import Events


def hook_of(settings: AlertSettings, folder: Path, events: Events) -> Hook:
    """The way out that a section names.

    Args:
        settings: the section.
        folder: the project's, in which commands are started.
        events: for the log.
    """
    if settings.webhook is not None:
        return Webhook(settings.webhook)
    if settings.mail is not None:
        return _mail(settings.mail)
    if settings.command is not None:
        return Command(settings.command, folder)
    return LogHook(events)


def deliveries(alerts: Mapping[str, AlertSettings], folder: Path, events: Events) -> list[Delivery]:
    """A delivery for each enabled hook, on the event loop that runs now."""
    clock = asyncio.get_running_loop().time
    return [
        Delivery(
            name,
            hook_of(settings, folder, events),
            frozenset(AlertKind if settings.on is None else settings.on),
            RateLimit(settings.at_most),
            events,
            clock,
        )
        for name, settings in alerts.items()
        if settings.enabled
    ]


def _mail(settings: MailSettings) -> Mail:
    return Mail(
        settings.host_and_port,
        settings.tls,
        settings.sender,
        settings.to,
        settings.user,
        settings.password_file,
    )
