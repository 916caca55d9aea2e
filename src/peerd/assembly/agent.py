"""The agent's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.agent.service import AgentService
from peerd.assembly.payload import events_of, settings_of
from peerd.runtime.service import Service
from peerd.store.database import Database


def agent(payload: Mapping[str, Any]) -> Service:
    """The service of a node's agent."""
    settings = settings_of(payload)
    return AgentService(
        settings.node,
        settings.logging,
        str(payload["incarnation"]),
        settings.manager.inactive_after,
        Database(settings.database.url, pool_size=3),
        events_of(payload, settings),
    )
