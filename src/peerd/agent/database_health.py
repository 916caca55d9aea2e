"""Reports what slows the database, such as a transaction that was left open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain.errors import DatabaseUnavailable
from peerd.operate.diagnostics import Finding, examine_slowdowns
from peerd.runtime.observability.events import DatabaseSlowdownDetected, EventBus
from peerd.runtime.process.link import Link
from peerd.store.connection.database import Database
from peerd.store.connection.mysql import is_member
from peerd.store.schema.tables import nodes

EXAMINE_EVERY: Final = 60.0
"""Seconds."""


@dataclass(eq=False)
class DatabaseHealthMonitor(Subsystem):
    """Examines the database once a minute; the first of the active nodes does it for all."""

    database: Database
    events: EventBus

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Start examining; SQLite has nothing to examine."""
        self._node = link.node
        self._components = components
        if self.database.name != "sqlite":
            components.start("database health", self._examine_periodically)

    async def stop(self, grace: float) -> None:
        await self._components.stop(["database health"], within=1.0)

    async def _examine_periodically(self) -> None:
        while True:
            await asyncio.sleep(EXAMINE_EVERY)
            await self.examine()

    async def examine(self) -> None:
        try:
            found = await asyncio.to_thread(self.database.read, _examine_for_node, self._node)
        except DatabaseUnavailable:
            return
        for finding in found:
            self.events.emit(
                DatabaseSlowdownDetected(subject=finding.subject, message=finding.message, remedy=finding.remedy)
            )


def _examine_for_node(connection: Connection, node: str) -> list[Finding]:
    """Only the first node examines; on Galera each does, for it may be connected to another server."""
    if not is_member(connection) and not is_first_node(connection, node):
        return []
    return examine_slowdowns(connection)


def is_first_node(connection: Connection, node: str) -> bool:
    """Whether this is the first of the active nodes, which does for all what one node should do."""
    first = sa.select(nodes.c.name).where(nodes.c.active).order_by(nodes.c.id).limit(1)
    return bool(connection.execute(first).scalar() == node)
