"""What a child reads from its payload: the node's settings, and where its events go."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from typing import Any

from peerd.config.serialization import deserialize_section
from peerd.config.settings import Settings
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_aggregation import SuccessAggregator
from peerd.runtime.observability.log_messages import LogEventListener, configure_logging
from peerd.shared.connection import SharedConnection
from peerd.shared.proxy import SharedClients


def decode_settings(payload: Mapping[str, Any]) -> Settings:
    """The node's settings, as `peerd up` read them."""
    return deserialize_section(payload["settings"], Settings)


def create_events(payload: Mapping[str, Any], settings: Settings) -> EventBus:
    """Where the process's events go: its log, many successes in a line unless everything is wanted."""
    log = configure_logging(
        settings.logging.level, settings.logging.format, node=settings.node.name, slot=str(payload["slot"])
    )
    if settings.logging.level == "debug":
        return EventBus(LogEventListener(log))
    condensed = SuccessAggregator(LogEventListener(log))
    atexit.register(condensed.flush)
    return EventBus(condensed)


def shared_clients_factory(settings: Settings) -> Callable[[], SharedClients]:
    """What makes the process's way to the clients that the agent shares, on its event loop. It connects when used."""
    return lambda: SharedClients(SharedConnection(settings.node.run_directory))
