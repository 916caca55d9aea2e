"""The agent's service: it registers the node, keeps its components going, and ends the node's life in good order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy.engine import Connection

from peerd.agent.components import ComponentSupervisor
from peerd.agent.heartbeat import NodeHeartbeat
from peerd.agent.orphans import OrphanReleaser
from peerd.agent.registration import NodeRegistration
from peerd.config.settings import LoggingSettings, NodeSettings
from peerd.domain.alert import AlertKind
from peerd.domain.errors import DatabaseUnavailable, NodeNameTaken, NodeReplaced
from peerd.runtime.concurrency.periodic_thread import PeriodicCaller, PeriodicStep, PeriodicThread
from peerd.runtime.observability.events import EventBus, MasterDied, NodeSuperseded
from peerd.runtime.observability.log_rotation import LogRotation
from peerd.runtime.process.link import Link
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.nodes import deregister_node, mark_node_silent
from peerd.store.nodes.processes import end_process, register_process, retry_if_replacement
from peerd.store.schema.migrate import require_current_schema

SIGN_OFF_WITHIN: Final = 3.0
"""Seconds that the end of the node may take to be written."""


class AgentComponent(Protocol):
    """Something that the agent does beside its own duties."""

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Begin, with the node registered; an exception is a failed boot."""
        ...

    def receive(self, message: Mapping[str, Any]) -> None:
        """Look at a message of the master."""
        ...

    async def stop(self, grace: float) -> None:
        """End within so many seconds. It may be cancelled, and called again with less; also after a failed start."""
        ...


class AgentService:
    """The agent of one node.

    Args:
        settings: the node's.
        logging: how its log file is rotated.
        incarnation: of this life of its master.
        silence: seconds without a beat after which others call a node inactive.
        database: of this process.
        events: what happens.
        ticker: makes the thread that beats.
        agent_components: what the agent does beside its own duties; begun in this order, and ended in the reverse of
            it.
    """

    def __init__(
        self,
        settings: NodeSettings,
        logging: LoggingSettings,
        incarnation: str,
        silence: float,
        database: Database,
        events: EventBus,
        ticker: Callable[[PeriodicStep], PeriodicCaller] = PeriodicThread,
        agent_components: Sequence[AgentComponent] = (),
    ) -> None:
        self._settings = settings
        self._logging = logging
        self._incarnation = incarnation
        self._silence = silence
        self._database = database
        self._threads = DatabaseThreads(database, threads=2)
        self._events = events
        self._ticker = ticker
        self._agent_components = agent_components
        self._replaced = False
        self._has_started = False
        self._has_reported_master_death = False

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the node: it is in the table before any other process of it begins."""
        self._link = link
        self._outages = OutageTracker(self._events, asyncio.get_running_loop().time)
        node_id, self._process_id = await retry_if_replacement(self._register, link, self._outages)
        self._components = ComponentSupervisor(self._events)
        self._start_own_components()
        try:
            for component in self._agent_components:
                await component.start(link, self._components)
        except BaseException:
            await self.stop(0.0)
            raise
        self._has_started = True
        return {"process_id": self._process_id, "node_id": node_id}

    async def run(self) -> None:
        """The components do the work."""
        await asyncio.Event().wait()

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Hear of a death, or of what a part wants to hear of."""
        if message.get("type") == "death":
            self._orphan_releaser.receive(message)
        for component in self._agent_components:
            component.receive(message)

    async def quiet(self) -> None:
        """The agent goes last: it has work until the end."""

    async def stop(self, grace: float) -> None:
        """End the parts, finish what is known of deaths, and end the node's life: in good order if its master does."""
        master_died = self._link.master_lost
        if master_died:
            self._report_master_death()
        for component in reversed(self._agent_components):
            await component.stop(grace)
        try:
            async with asyncio.timeout(SIGN_OFF_WITHIN):
                await self._components.stop(["deaths"], within=SIGN_OFF_WITHIN)
                await self._orphan_releaser.finish()
                await self._components.stop(self._components.names, within=SIGN_OFF_WITHIN)
                await self._threads.run(self._sign_off, master_died)
        except (TimeoutError, DatabaseUnavailable):
            return  # the node falls silent instead, and others notice

    # ---------------------------------------------------------------- steps

    def _sign_off(self, connection: Connection, master_died: bool) -> None:  # noqa: FBT001 - called with what it is
        """End the agent's process and the node's life together: a process that is hurried may be gone in between."""
        if self._process_id is not None:
            end_process(connection, self._process_id, "its master died" if master_died else "stopped")
        if master_died or not self._link.is_replaced:  # nobody replaces it then
            end_life = mark_node_silent if master_died else deregister_node
            end_life(connection, self._link.node, self._incarnation)

    def _report_master_death(self) -> None:
        """Say it in the log, and to the parts as the master would have said it: one of them has the hooks."""
        if self._has_reported_master_death or not self._has_started:
            return
        self._has_reported_master_death = True
        self._events.emit(MasterDied(node=self._link.node))
        text = (
            f"the master of {self._link.node} has died: its processes end, and none is started again until the node is"
        )
        for component in self._agent_components:
            component.receive({"type": "alert", "alert": AlertKind.MASTER_DIED.value, "text": text})

    async def _register(self) -> tuple[int, int]:
        """Begin this life of the node, or go on with it, and register the process."""
        link = self._link
        await asyncio.to_thread(require_current_schema, self._database)
        registration = NodeRegistration(
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
                self._leave_for_replacement(taken)
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

    def _start_own_components(self) -> None:
        heartbeat = NodeHeartbeat(
            self._database,
            node=self._link.node,
            incarnation=self._incarnation,
            process_id=self._process_id,
            every=self._settings.heartbeat_every,
            outages=self._outages,
            on_replaced=self._leave_for_replacement,
            ticker=self._ticker,
        )
        self._orphan_releaser = OrphanReleaser(
            self._threads, self._incarnation, self._link.send, self._outages, self._events
        )
        self._components.start("heartbeat", heartbeat.run)
        self._components.start("deaths", self._orphan_releaser.run)
        if self._link.log_file:
            rotation = (self._logging.max_size, self._logging.keep, self._link.request_log_reopen)
            self._components.start("log rotation", LogRotation(Path(self._link.log_file), *rotation).run)

    def _leave_for_replacement(self, replaced: NodeReplaced | NodeNameTaken) -> None:
        """Another life of this name has begun; this node must end, and its master is the one to do it.

        It is asked once: asked again, it would leave nothing the time to end.
        """
        if self._replaced or self._link.master_lost:
            return
        self._replaced = True
        self._events.emit(NodeSuperseded(node=self._link.node, reason=str(replaced)))
        self._link.request_node_stop()
