"""A gateway process: serves queue clients by the beanstalkd and the JSON protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.entrypoints.payload import create_events, decode_settings
from peerd.entrypoints.telemetry import ProcessTelemetry
from peerd.gateway.service import GatewayService
from peerd.runtime.observability.alert_detection import AlertingService
from peerd.runtime.process.service import Service
from peerd.store.connection.database import Database


def gateway(payload: Mapping[str, Any]) -> Service:
    settings = decode_settings(payload)
    events = create_events(payload, settings)
    database = Database(settings.database.url, pool_size=settings.database.pool_size)
    telemetry = ProcessTelemetry(settings, events, database)
    service = GatewayService(
        settings.gateway[str(payload["kind"])],
        settings.queues,
        database,
        settings.cluster.secret,
        settings.node.run_directory,
        events,
        settings.manager.max_update,
        telemetry.attach,
    )
    return AlertingService(service, events)
