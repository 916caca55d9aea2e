"""What a child reads from its payload: the node's settings, and where its events go."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from typing import Any

from peerd.config.serialization import from_plain
from peerd.config.settings import Settings
from peerd.runtime.observability.events import Events
from peerd.runtime.observability.log_aggregation import Condensed
from peerd.runtime.observability.log_messages import LogReader, start_logging
from peerd.shared.connection import Connection
from peerd.shared.proxy import SharedClients


def settings_of(payload: Mapping[str, Any]) -> Settings:
    """The node's settings, as `peerd up` read them."""
    return from_plain(payload["settings"], Settings)


def events_of(payload: Mapping[str, Any], settings: Settings) -> Events:
    """Where the process's events go: its log, many successes in a line unless everything is wanted."""
    log = start_logging(
        settings.logging.level, settings.logging.format, node=settings.node.name, slot=str(payload["slot"])
    )
    if settings.logging.level == "debug":
        return Events(LogReader(log))
    condensed = Condensed(LogReader(log))
    atexit.register(condensed.flush)
    return Events(condensed)


def shared_of(settings: Settings) -> Callable[[], SharedClients]:
    """What makes the process's way to the clients that the agent shares, on its event loop. It connects when used."""
    return lambda: SharedClients(Connection(settings.node.run_directory))
