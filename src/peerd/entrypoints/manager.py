"""The manager's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.doorbell.event_listener import RingingFacts
from peerd.doorbell.notifier import Ringer
from peerd.entrypoints.payload import events_of, settings_of
from peerd.manager.service import ManagerService
from peerd.runtime.observability.alert_detection import Alerting
from peerd.runtime.process.service import Service
from peerd.store.connection.database import Database


def manager(payload: Mapping[str, Any]) -> Service:
    """The service of a node's manager."""
    settings = settings_of(payload)
    database = Database(settings.database.url, pool_size=1)
    events = events_of(payload, settings)
    events.listen(RingingFacts(Ringer(database, settings.cluster.secret).ring))
    return Alerting(ManagerService(settings.manager, database, events), events)
