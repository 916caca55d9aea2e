"""The manager's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.doorbell.notifier import Notifier
from peerd.doorbell.ringing import DoorbellEventListener
from peerd.entrypoints.process_parts import ProcessParts
from peerd.manager.service import ManagerService
from peerd.shell.process_shell import ProcessShell
from peerd.shell.telemetry import ProcessTelemetry


def manager(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload, pool_size=3)  # chores, samples of queues, samples of storage
    settings, events, database = parts.settings, parts.events, parts.database
    notifier = Notifier(database, settings.cluster.secret)
    events.listen(DoorbellEventListener(notifier.ring))
    telemetry = ProcessTelemetry(settings.telemetry, events, database, notifier)
    service = ManagerService(settings.manager, settings.queues, settings.statistics)
    return ProcessShell(service, database, events, attach=telemetry.attach)
