"""The manager's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.doorbell.event_listener import DoorbellEventListener
from peerd.doorbell.notifier import Notifier
from peerd.entrypoints.payload import create_events, decode_settings
from peerd.entrypoints.telemetry import ProcessTelemetry
from peerd.manager.service import ManagerService
from peerd.runtime.observability.alert_detection import AlertingService
from peerd.runtime.process.service import Service
from peerd.store.connection.database import Database


def manager(payload: Mapping[str, Any]) -> Service:
    settings = decode_settings(payload)
    database = Database(settings.database.url, pool_size=3)  # chores, samples of queues, samples of storage
    events = create_events(payload, settings)
    notifier = Notifier(database, settings.cluster.secret)
    events.listen(DoorbellEventListener(notifier.ring))
    telemetry = ProcessTelemetry(settings, events, database, notifier)
    service = ManagerService(
        settings.manager, database, events, settings.queues, settings.statistics, attach=telemetry.attach
    )
    return AlertingService(service, events)
