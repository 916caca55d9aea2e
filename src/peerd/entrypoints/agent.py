"""The agent's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from peerd.agent.alerts.dispatcher import Desk
from peerd.agent.alerts.factory import deliveries
from peerd.agent.database_health import Checkup
from peerd.agent.doorbell.component import BellPart
from peerd.agent.resource_limits import Limits
from peerd.agent.resource_usage import Samples
from peerd.agent.service import AgentService
from peerd.agent.setup_runner import Setup, UserCode
from peerd.config.schedules import schedules_of
from peerd.doorbell.event_listener import RingingFacts
from peerd.entrypoints.import_string import NoEntry, find
from peerd.entrypoints.payload import events_of, settings_of
from peerd.operate.client import Client
from peerd.runtime.observability.alert_detection import Alerting
from peerd.runtime.process.process_context import LIMITS
from peerd.runtime.process.service import Service
from peerd.schedules.agent_component import SchedulesPart
from peerd.schedules.registry import Book
from peerd.store.connection.database import Database

ASK_WITHIN: Final = 2.0
"""Seconds that a worker has to tell its limits; it is asked again."""


def agent(payload: Mapping[str, Any]) -> Service:
    """The service of a node's agent."""
    settings = settings_of(payload)
    events = events_of(payload, settings)
    incarnation = str(payload["incarnation"])
    silence = settings.manager.inactive_after
    book = Book(schedules_of(settings))
    user = UserCode(
        settings.agent.setup,
        find_setup,
        events,
        options=settings.agent.options,
        client=Client(settings.database.url, secret=settings.cluster.secret),
        run_directory=settings.node.run_directory,
        log=structlog.get_logger(),
        schedules=book,
    )
    database = Database(settings.database.url, pool_size=5)
    schedules = SchedulesPart(
        book, lambda: user.process, find, database, incarnation=incarnation, silence=silence, events=events
    )
    bell = BellPart(
        settings.node, settings.cluster, lambda: user.process, database, incarnation=incarnation, events=events
    )
    events.listen(RingingFacts(bell.ring))
    service = AgentService(
        settings.node,
        settings.logging,
        incarnation,
        silence,
        database,
        events,
        parts=(
            Desk(lambda: deliveries(settings.alerts, settings.project_directory, events)),
            Checkup(database, events),
            user,
            bell,
            Samples(
                lambda pid: user.ask(pid, LIMITS, within=ASK_WITHIN),
                {kind: Limits(*limits) for kind, limits in payload["limits_of_commands"].items()},
            ),
            schedules,
        ),
    )
    return Alerting(service, events)


def find_setup(entry: str) -> Setup:
    """The function that [agent] setup names.

    Raises:
        NoEntry: it is not there, or cannot be called.
    """
    found = find(entry)
    if not callable(found):
        raise NoEntry(f"{entry} is a {type(found).__name__}, not a function that takes the agent")
    return found
