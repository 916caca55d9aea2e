"""The steps of an `InlineNode`: run one task, run all that is due, do the chores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peerd.config.settings import ManagerSettings
from peerd.domain.task import Task
from peerd.manager.chores import CHORES
from peerd.runtime.observability.events import ChoreRan, EventBus
from peerd.store.connection.database import DatabaseThreads
from peerd.store.maintenance.rescue import rescue_untouched
from peerd.store.nodes.nodes import Node, deactivate_silent, heartbeat
from peerd.testing.node.process import InlineProcess

MAX_ATTEMPTS: Final = 1000
"""Attempts after which `run_all` no longer believes that it will end."""
BEFORE_A_CLAIM: Final = ("arrive scheduled", "arrive failures", "postpone", "expire")
"""Chores that decide what may be claimed."""


class InlineSteps:
    """``node.aio``: what an `InlineNode` does when it is told, awaitable, in the test's own event loop.

    Args:
        node: under which it is registered.
        processes: those of its workers.
        threads: the database.
        events: what happens.
    """

    def __init__(
        self, node: Node, processes: Sequence[InlineProcess], threads: DatabaseThreads, events: EventBus
    ) -> None:
        self.running = False
        """Whether a task is being run."""
        self._node = node
        self._processes = processes
        self._threads = threads
        self._events = events
        self._chores = ManagerSettings()

    async def run_one(self) -> Task | None:
        """`InlineNode.run_one`, awaited."""
        await self._run_chores(BEFORE_A_CLAIM)
        self.running = True
        try:
            for process in self._processes:
                if task := await process.claim():
                    return await process.run(task)
        finally:
            self.running = False
        await self._beat()  # a node that another one has replaced claims nothing, and must not take that for an end
        return None

    async def run_all(self, limit: int = MAX_ATTEMPTS) -> list[Task]:
        """`InlineNode.run_all`, awaited."""
        ran: list[Task] = []
        while task := await self.run_one():
            ran.append(task)
            if len(ran) >= limit:
                last = f"the last was task {task.id} ({task.queue} {task.name}), which is {task.status} now"
                raise RuntimeError(f"{limit} attempts were run, and more may be due: {last}. Time stands still here")
        return ran

    async def run_chores(self) -> None:
        """`InlineNode.run_chores`, awaited."""
        await self._beat()
        await self._threads.run(deactivate_silent, self._chores.inactive_after)
        while await self._threads.run(rescue_untouched, self._chores.max_update, self._chores.batch):
            pass
        await self._run_chores(tuple(chore.name for chore in CHORES))

    async def _beat(self) -> None:
        await self._threads.run(heartbeat, self._node.name, self._node.incarnation or "")

    async def _run_chores(self, names: Sequence[str]) -> None:
        for chore in CHORES:
            if chore.name in names:
                total = count = await self._threads.run(chore.run, *chore.arguments(self._chores))
                while count == self._chores.batch:
                    count = await self._threads.run(chore.run, *chore.arguments(self._chores))
                    total += count
                if total:
                    self._events.emit(ChoreRan(chore=chore.name, count=total))
