"""What the agent has of schedules: made once, begun with it, and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.custom_triggers import CustomTriggers
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.run_dispatcher import RunDispatcher
from peerd.schedules.scheduler import Scheduler
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.nodes.nodes import get_node_id
from peerd.store.schedule_runs import NodeIdentity

NAME: Final = "schedules"
"""Of the component."""
STOP_TIMEOUT: Final = 1.0
"""Seconds that the look under way, and the deaths that are known, may take at the end."""


class ComponentStarter(Protocol):
    """What keeps the agent's components going."""

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> object:
        """Begin one."""
        ...

    async def stop(self, names: Iterable[str], within: float) -> None:
        """End some."""
        ...


class SchedulesComponent:
    """The schedules of a node, in its agent.

    Args:
        registry: which they are; the user's setup may add to it.
        process: gives the agent's process, once the parts before this one have begun.
        find: gives what an entry ``module:name`` names.
        database: of the agent's process.
        incarnation: of this life of the node.
        silence: seconds without a beat after which a node counts as gone.
        events: what happens.
    """

    def __init__(
        self,
        registry: ScheduleRegistry,
        process: Callable[[], ProcessContext],
        find: Callable[[str], object],
        database: Database,
        *,
        incarnation: str,
        silence: float,
        events: EventBus,
    ) -> None:
        self._registry = registry
        self._process = process
        self._find = find
        self._database = database
        self._incarnation = incarnation
        self._silence = silence
        self._events = events
        self._ready = asyncio.Event()
        self._scheduler: Scheduler | None = None

    async def start(self, link: Link, components: ComponentStarter) -> None:
        """Begin; nothing ticks before the node is ready."""
        self._components = components
        self._threads = DatabaseThreads(self._database, threads=2)
        identity = NodeIdentity(await self._threads.read(get_node_id, link.node), self._incarnation)
        dispatch = RunDispatcher(self._registry, self._process(), self._threads, identity, self._events)
        custom = CustomTriggers(self._find, self._threads, identity, self._events)
        self._scheduler = Scheduler(
            self._registry, dispatch, custom, self._threads, identity, silence=self._silence, events=self._events
        )
        components.start(NAME, self._run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Hear that the node is ready, and of deaths."""
        match message.get("type"):
            case "ready":
                self._ready.set()
            case "death" if self._scheduler is not None:
                self._scheduler.on_process_death(int(message["pid"]), str(message["cause"]["text"]))

    async def stop(self, grace: float) -> None:
        """Look no more; write the ends that are known."""
        if self._scheduler is None:
            return
        await self._components.stop([NAME], within=STOP_TIMEOUT)
        with suppress(TimeoutError, DatabaseUnavailable):  # what cannot be written, other nodes find lost
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._scheduler.record_process_deaths()

    async def _run(self) -> None:
        await self._ready.wait()
        assert self._scheduler is not None
        await self._scheduler.run()
