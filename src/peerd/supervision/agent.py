"""The agent: one per node. It keeps the node's heartbeat, and gives back the tasks of processes that died.

It is made of components, each of which is started again alone when it fails; no exception ends the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from peerd.config.settings import LoggingSettings, NodeSettings
from peerd.domain.errors import DatabaseAway, NodeNameTaken, NodeReplaced
from peerd.domain.lifecycle import Event
from peerd.runtime.events import (
    ComponentFailed,
    Events,
    NodeMustLeave,
    ProcessDied,
    TasksTakenBack,
)
from peerd.runtime.faults import words
from peerd.runtime.link import Link
from peerd.runtime.rotation import LogRotation
from peerd.store.database import Database, DatabaseThreads
from peerd.store.migrate import require_newest
from peerd.store.nodes import beat, leave
from peerd.store.outages import Outages
from peerd.store.presence import patiently
from peerd.store.processes import beat_process, end_nameless_process, end_process, register_process
from peerd.store.rescue import release_process
from peerd.supervision.registration import Registration

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds between two starts of a component that keeps failing."""
LEAVE_WITHIN: Final = 3.0
"""Seconds that the end of the node may take to be written."""


class AgentService:
    """The agent of one node.

    Args:
        settings: the node's.
        logging: how its log file is rotated.
        incarnation: of this life of its master.
        silence: seconds without a beat after which others call a node inactive.
        database: of this process.
        events: what happens.
    """

    def __init__(
        self,
        settings: NodeSettings,
        logging: LoggingSettings,
        incarnation: str,
        silence: float,
        database: Database,
        events: Events,
    ) -> None:
        self._settings = settings
        self._logging = logging
        self._incarnation = incarnation
        self._silence = silence
        self._database = database
        self._threads = DatabaseThreads(database, threads=2)
        self._events = events
        self._deaths: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._replaced = False

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the node: it is in the table before any other process of it begins."""
        self._link = link
        self._outages = Outages(self._events, asyncio.get_running_loop().time)
        node_id, self._process_id = await patiently(self._enter, link, self._outages)
        return {"process_id": self._process_id, "node_id": node_id}

    async def _enter(self) -> tuple[int, int]:
        """Begin this life of the node, or go on with it, and register the process."""
        link = self._link
        await asyncio.to_thread(require_newest, self._database)
        registration = Registration(
            self._threads,
            link.node,
            self._incarnation,
            silence=self._silence,
            address=self._settings.address,
            zone=self._settings.zone,
            events=self._events,
        )
        try:
            node = await registration.register()
        except NodeNameTaken as taken:
            if link.is_replacement:  # the node is up; it was replaced while it had no agent
                self._leave_to(taken)
            raise
        process_id = await self._threads.run(
            register_process,
            node_id=node.id,
            incarnation=self._incarnation,
            kind=link.kind,
            slot=link.slot,
            role=link.role,
            pid=link.pid,
        )
        return node.id, process_id

    async def run(self) -> None:
        """Keep the components going."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kept_going("heartbeat", self._beat))
            group.create_task(self._kept_going("deaths", self._take_next_death))
            if self._link.log_file:
                how = (self._logging.max_size, self._logging.keep, self._link.ask_to_reopen_logs)
                rotation = LogRotation(Path(self._link.log_file), *how)
                group.create_task(self._kept_going("log rotation", rotation.run))

    async def receive(self, message: Mapping[str, object]) -> None:
        """Hear of a death."""
        if message.get("type") == "death":
            self._say_died(message)
            self._deaths.put_nowait(message)

    async def quiet(self) -> None:
        """The agent goes last: it has work until the end."""

    async def stop(self, grace: float) -> None:
        """Finish what is known of deaths, and end the node's life in good order."""
        try:
            async with asyncio.timeout(max(grace, LEAVE_WITHIN)):
                while not self._deaths.empty():
                    await self._take_next_death()
                await self._threads.run(end_process, self._process_id, "stopped")
                if not self._link.is_replaced:
                    await self._threads.run(leave, self._link.node, self._incarnation)
        except (TimeoutError, DatabaseAway):
            return  # the node falls silent instead, and others notice

    async def _kept_going(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Do a component's step again and again. One that fails is tried again after a pause that grows."""
        pause = FIRST_PAUSE
        while True:
            try:
                await step()
                pause = FIRST_PAUSE
            except NodeReplaced as error:
                self._leave_to(error)
                await asyncio.sleep(self._settings.heartbeat_every)
            except DatabaseAway:
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._settings.heartbeat_every)
            except Exception as error:  # noqa: BLE001 - nothing ends the agent
                self._events.emit(ComponentFailed(component=name, error=words(error), again_in=pause))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _beat(self) -> None:
        try:
            await self._threads.run(beat, self._link.node, self._incarnation)
            await self._threads.run(beat_process, self._process_id)
        except DatabaseAway as error:
            self._outages.lost(error)
            raise
        self._outages.found()
        await asyncio.sleep(self._settings.heartbeat_every)

    def _leave_to(self, replaced: NodeReplaced | NodeNameTaken) -> None:
        """Another life of this name has begun; this node must end, and its master is the one to do it.

        It is asked once: asked again, it would leave nothing the time to end.
        """
        if self._replaced or self._link.master_lost:
            return
        self._replaced = True
        self._events.emit(NodeMustLeave(node=self._link.node, reason=str(replaced)))
        self._link.ask_master_to_leave()

    async def _take_next_death(self) -> None:
        death = await self._deaths.get()
        try:
            await self._take(death)
        except BaseException:
            self._deaths.put_nowait(death)
            raise
        self._link.send({"type": "death-acknowledged", "id": death["id"]})

    def _say_died(self, death: Mapping[str, Any]) -> None:
        cause, expected = str(death["cause"]["text"]), bool(death["expected"])
        self._events.emit(ProcessDied(slot=death["slot"], pid=death["pid"], cause=cause, expected=expected))

    async def _take(self, death: Mapping[str, Any]) -> None:
        """Give back what a dead process held, and record how it died."""
        cause = str(death["cause"]["text"])
        process_id = (death.get("identity") or {}).get("process_id")
        expected = bool(death["expected"])
        if process_id is None:  # it died in its boot, before it could claim
            nameless = (self._incarnation, death["slot"], death["pid"], cause)
            await self._threads.run(end_nameless_process, *nameless)
            return
        while taken := await self._threads.run(release_process, process_id, cause, crashed=not expected):
            dead = sum(one.event is Event.DIE for one in taken)
            ids = tuple(one.task_id for one in taken)
            self._events.emit(TasksTakenBack(cause=f"{death['slot']} {cause}", task_ids=ids, dead=dead))
        await self._threads.run(end_process, process_id, cause)
