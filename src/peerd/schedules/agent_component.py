"""What the agent has of schedules: made once, begun with it, and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from peerd.domain.errors import DatabaseAway
from peerd.runtime.observability.events import Events
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.custom_triggers import CustomTypes
from peerd.schedules.registry import Book
from peerd.schedules.run_dispatcher import Dispatch
from peerd.schedules.scheduler import ScheduleClock
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.nodes.nodes import node_id_of
from peerd.store.schedule_runs import Here

NAME: Final = "schedules"
"""Of the component."""
END_WITHIN: Final = 1.0
"""Seconds that the look under way, and the deaths that are known, may take at the end."""


class Components(Protocol):
    """What keeps the agent's components going."""

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> object:
        """Begin one."""
        ...

    async def stop(self, names: Iterable[str], within: float) -> None:
        """End some."""
        ...


class SchedulesPart:
    """The schedules of a node, in its agent.

    Args:
        book: which they are; the user's setup may add to it.
        process: gives the agent's process, once the parts before this one have begun.
        find: gives what an entry ``module:name`` names.
        database: of the agent's process.
        incarnation: of this life of the node.
        silence: seconds without a beat after which a node counts as gone.
        events: what happens.
    """

    def __init__(
        self,
        book: Book,
        process: Callable[[], ProcessContext],
        find: Callable[[str], object],
        database: Database,
        *,
        incarnation: str,
        silence: float,
        events: Events,
    ) -> None:
        self._book = book
        self._process = process
        self._find = find
        self._database = database
        self._incarnation = incarnation
        self._silence = silence
        self._events = events
        self._ready = asyncio.Event()
        self._clock: ScheduleClock | None = None

    async def start(self, link: Link, components: Components) -> None:
        """Begin; nothing ticks before the node is ready."""
        self._components = components
        self._threads = DatabaseThreads(self._database, threads=2)
        here = Here(await self._threads.read(node_id_of, link.node), self._incarnation)
        dispatch = Dispatch(self._book, self._process(), self._threads, here, self._events)
        custom = CustomTypes(self._find, self._threads, here, self._events)
        self._clock = ScheduleClock(
            self._book, dispatch, custom, self._threads, here, silence=self._silence, events=self._events
        )
        components.start(NAME, self._run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Hear that the node is ready, and of deaths."""
        match message.get("type"):
            case "ready":
                self._ready.set()
            case "death" if self._clock is not None:
                self._clock.hear_death(int(message["pid"]), str(message["cause"]["text"]))

    async def stop(self, grace: float) -> None:
        """Look no more; write the ends that are known."""
        if self._clock is None:
            return
        await self._components.stop([NAME], within=END_WITHIN)
        with suppress(TimeoutError, DatabaseAway):  # what cannot be written, other nodes find lost
            async with asyncio.timeout(END_WITHIN):
                await self._clock.take_deaths()

    async def _run(self) -> None:
        await self._ready.wait()
        assert self._clock is not None
        await self._clock.run()
