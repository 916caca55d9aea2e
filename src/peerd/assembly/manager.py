"""The manager's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.assembly.payload import events_of, settings_of
from peerd.manager.service import ManagerService
from peerd.runtime.alerts import Alerting
from peerd.runtime.service import Service
from peerd.store.database import Database


def manager(payload: Mapping[str, Any]) -> Service:
    """The service of a node's manager."""
    settings = settings_of(payload)
    database = Database(settings.database.url, pool_size=1)
    events = events_of(payload, settings)
    return Alerting(ManagerService(settings.manager, database, events), events)
