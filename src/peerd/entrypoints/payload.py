"""Settings and event bus of a child, from the payload of its plan."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from typing import Any

from peerd.config.serialization import deserialize_section
from peerd.config.settings import Settings
from peerd.runtime.observability.events import ComponentFailed, EventBus, EventListener
from peerd.runtime.observability.log_aggregation import FailureAggregator, SuccessAggregator
from peerd.runtime.observability.log_messages import LogEventListener, configure_logging
from peerd.runtime.observability.log_stream import REPORT_EVERY, report_lost_output
from peerd.shared.connection import SharedConnection
from peerd.shared.proxy import SharedClients


def decode_settings(payload: Mapping[str, Any]) -> Settings:
    return deserialize_section(payload["settings"], Settings)


def create_events(payload: Mapping[str, Any], settings: Settings) -> EventBus:
    """Return an event bus that writes the log, with many successes aggregated into a line unless the level is debug."""
    log = configure_logging(
        settings.logging.level, settings.logging.format, node=settings.node.name, slot=str(payload["slot"])
    )
    listener: EventListener = FailureAggregator(LogEventListener(log))
    if settings.logging.level != "debug":
        listener = aggregator = SuccessAggregator(listener)
        atexit.register(aggregator.flush)
    events = EventBus(listener)
    report_lost_output(
        lambda error: events.emit(ComponentFailed(component="log", error=str(error), again_in=REPORT_EVERY))
    )
    return events


def shared_clients_factory(settings: Settings) -> Callable[[], SharedClients]:
    """Return a factory of the process's connection to the agent's shared clients, which connects at its first use."""
    return lambda: SharedClients(SharedConnection(settings.node.run_directory))
