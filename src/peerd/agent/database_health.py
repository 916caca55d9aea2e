"""The part of the agent that looks for what slows the database, such as a transaction that somebody forgot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.agent.components import ComponentSupervisor
from peerd.domain.errors import DatabaseUnavailable
from peerd.operate.diagnostics import Finding, examine_slowdowns
from peerd.runtime.observability.events import DatabaseSlowdownDetected, EventBus
from peerd.runtime.process.link import Link
from peerd.store.connection.database import Database
from peerd.store.connection.galera import is_member
from peerd.store.schema.tables import nodes

EXAMINE_EVERY: Final = 60.0
"""Seconds."""


class DatabaseHealthMonitor:
    """Asks the database from time to time; of the nodes that are active, the first one does it for all.

    Args:
        database: of this process.
        events: what is found.
    """

    def __init__(self, database: Database, events: EventBus) -> None:
        self._database = database
        self._events = events

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Begin."""
        self._node = link.node
        self._components = components
        if self._database.name != "sqlite":
            components.start("checkup", self._examine_periodically)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Nothing that the master says concerns it."""

    async def stop(self, grace: float) -> None:
        """End."""
        await self._components.stop(["checkup"], within=1.0)

    async def _examine_periodically(self) -> None:
        while True:
            await asyncio.sleep(EXAMINE_EVERY)
            await self.examine()

    async def examine(self) -> None:
        """Look once."""
        try:
            found = await asyncio.to_thread(self._database.read, _examine_for_node, self._node)
        except DatabaseUnavailable:
            return
        for finding in found:
            self._events.emit(
                DatabaseSlowdownDetected(subject=finding.subject, message=finding.message, remedy=finding.remedy)
            )


def _examine_for_node(connection: Connection, node: str) -> list[Finding]:
    """What this node finds, if it is the one that looks: on Galera all do, for each may be at another server."""
    first = sa.select(nodes.c.name).where(nodes.c.active).order_by(nodes.c.id).limit(1)
    if not is_member(connection) and connection.execute(first).scalar() != node:
        return []
    return examine_slowdowns(connection)
