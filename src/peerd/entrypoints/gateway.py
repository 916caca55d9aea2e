"""A gateway process: serves queue clients by the beanstalkd and the JSON protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.entrypoints.process_parts import ProcessParts
from peerd.gateway.service import GatewayService
from peerd.shell.process_shell import ProcessShell
from peerd.shell.telemetry import ProcessTelemetry


def gateway(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload)
    settings, events, database = parts.settings, parts.events, parts.database
    service = GatewayService(
        settings.gateway[parts.kind],
        settings.queues,
        settings.cluster.secret,
        settings.node.run_directory,
        settings.manager.max_update,
    )
    return ProcessShell(service, database, events, attach=ProcessTelemetry(settings.telemetry, events, database).attach)
