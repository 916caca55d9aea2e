"""The manager's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.doorbell.notifier import Notifier
from peerd.doorbell.ringing import DoorbellEventListener
from peerd.entrypoints.process_parts import ProcessParts
from peerd.manager.service import ManagerService
from peerd.shell import ProcessShell


def manager(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload, pool_size=3)  # chores, samples of queues, samples of storage
    settings = parts.settings
    notifier = Notifier(parts.database, settings.cluster.secret)
    parts.events.listen(DoorbellEventListener(notifier.ring), debug=False)
    service = ManagerService(settings.manager, settings.queues, settings.statistics)
    return parts.make_shell(service, notifier=notifier)
