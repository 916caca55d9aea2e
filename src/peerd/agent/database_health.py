"""Reports what slows the database, such as a transaction that was left open, and an outage that lasts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable
from peerd.operate.diagnostics import Finding, examine_slowdowns
from peerd.runtime.concurrency import call_on_loop
from peerd.runtime.observability import events
from peerd.runtime.observability.events import Event, EventBus
from peerd.store.connection.database import Database
from peerd.store.connection.mysql import is_member
from peerd.store.schema.tables import nodes

EXAMINE_EVERY: Final = 60.0  # seconds
REPORT_AFTER: Final = 15.0  # seconds


async def examine_periodically(database: Database, node: str, bus: EventBus) -> None:
    """Examine the database once a minute, until cancelled; the first of the active nodes does it for all."""
    while True:
        await asyncio.sleep(EXAMINE_EVERY)
        with suppress(DatabaseUnavailable):
            await examine(database, node, bus)


async def examine(database: Database, node: str, bus: EventBus) -> None:
    """Report what slows the database.

    Raises:
        DatabaseUnavailable: it does not answer.
    """
    for finding in await asyncio.to_thread(database.read, _examine_for_node, node):
        bus.emit(
            events.DatabaseSlowdownDetected(subject=finding.subject, message=finding.message, remedy=finding.remedy)
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


class OutageReporter:
    """Listens to an agent's events: emits `DatabaseAway` when an outage has lasted, and `DatabaseBack` at its end.

    A failover of some seconds needs no person.
    """

    def __init__(self, events: EventBus, after: float = REPORT_AFTER) -> None:
        self._events = events
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_reported = False

    def __call__(self, event: Event) -> None:
        """Take an event, on the thread that emitted it."""
        call_on_loop(self._loop, self._take, event)

    def _take(self, event: Event) -> None:
        match event:
            case events.DatabaseOutageStarted() if self._timer is None:
                self._timer = self._loop.call_later(self._after, self._report, event.reason)
            case events.DatabaseOutageEnded():
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if self._is_reported:
                    self._is_reported = False
                    self._events.emit(events.DatabaseBack(seconds=event.seconds))

    def _report(self, reason: str) -> None:
        self._is_reported = True
        self._events.emit(events.DatabaseAway(seconds=self._after, reason=reason))
