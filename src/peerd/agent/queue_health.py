"""Reports queues whose tasks wait for too long, and queues that no process serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.engine import Connection

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.agent.database_health import is_first_node
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.ongoing_conditions import OngoingConditions
from peerd.runtime.observability.events import EventBus, QueueBacklogEnded, QueueBacklogFound
from peerd.runtime.process.link import Link
from peerd.store.connection.database import Database
from peerd.store.late_queues import LateQueue, find_late_queues

EXAMINE_EVERY: Final = 60.0
"""Seconds; a report may come later by as much."""
UNSERVED_AFTER: Final = 60.0
"""Seconds that a task waits in a queue that no process has ever served before this is reported."""
REPEAT_EVERY: Final = 3_600.0
"""Seconds between two reports of the same queue, while its tasks wait."""


@dataclass(eq=False)
class QueueHealthMonitor(Subsystem):
    """Examines the queues; the first of the active nodes does it for all.

    Args:
        database: of the agent.
        events: what is found.
        max_wait: seconds for which the oldest pending task of a queue may have been due.
    """

    database: Database
    events: EventBus
    max_wait: float
    _late: OngoingConditions = field(default_factory=lambda: OngoingConditions(REPEAT_EVERY))

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Start examining."""
        self._node = link.node
        self._components = components
        components.start("queue health", self._examine_periodically)

    async def stop(self, grace: float) -> None:
        await self._components.stop(["queue health"], within=1.0)

    async def _examine_periodically(self) -> None:
        while True:
            await asyncio.sleep(EXAMINE_EVERY)
            await self.examine()

    async def examine(self) -> None:
        """Read the queues, and report those that have become late, and those that are late no more."""
        try:
            found = await asyncio.to_thread(self.database.read, self._find_late)
        except DatabaseUnavailable:
            return
        late = {queue.name: queue for queue in found}
        changes = self._late.update(late, asyncio.get_running_loop().time())
        for name in changes.present:
            queue = late[name]
            self.events.emit(QueueBacklogFound(queue=name, oldest=queue.age, is_served=queue.is_served))
        for name, seconds in changes.ended.items():
            self.events.emit(QueueBacklogEnded(queue=name, seconds=seconds))

    def _find_late(self, connection: Connection) -> list[LateQueue]:
        if not is_first_node(connection, self._node):
            return []
        return find_late_queues(connection, self.max_wait, UNSERVED_AFTER)
