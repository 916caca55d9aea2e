"""The part of the agent that looks for what slows the database, such as a transaction that somebody forgot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.agent.components import Components
from peerd.domain.errors import DatabaseAway
from peerd.operate.diagnostics import Finding, examine_what_slows
from peerd.runtime.observability.events import DatabaseSlowed, Events
from peerd.runtime.process.link import Link
from peerd.store.connection.database import Database
from peerd.store.connection.galera import is_member
from peerd.store.schema.tables import nodes

EVERY: Final = 60.0
"""Seconds."""


class Checkup:
    """Asks the database from time to time; of the nodes that are active, the first one does it for all.

    Args:
        database: of this process.
        events: what is found.
    """

    def __init__(self, database: Database, events: Events) -> None:
        self._database = database
        self._events = events

    async def start(self, link: Link, components: Components) -> None:
        """Begin."""
        self._node = link.node
        self._components = components
        if self._database.name != "sqlite":
            components.start("checkup", self._look_again_and_again)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Nothing that the master says concerns it."""

    async def stop(self, grace: float) -> None:
        """End."""
        await self._components.stop(["checkup"], within=1.0)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        try:
            found = await asyncio.to_thread(self._database.read, _examine_as, self._node)
        except DatabaseAway:
            return
        for finding in found:
            self._events.emit(DatabaseSlowed(subject=finding.subject, message=finding.message, remedy=finding.remedy))


def _examine_as(connection: Connection, node: str) -> list[Finding]:
    """What this node finds, if it is the one that looks: on Galera all do, for each may be at another server."""
    first = sa.select(nodes.c.name).where(nodes.c.active).order_by(nodes.c.id).limit(1)
    if not is_member(connection) and connection.execute(first).scalar() != node:
        return []
    return examine_what_slows(connection)
