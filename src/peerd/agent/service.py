"""The agent's service: registers the node, runs its own components and the subsystems, and signs the node off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.agent.heartbeat import NodeHeartbeat
from peerd.agent.orphans import OrphanReleaser
from peerd.agent.outage_reports import OutageReporter
from peerd.agent.registration import register_node
from peerd.config.settings import LoggingSettings, NodeSettings
from peerd.domain.alert import AlertKind
from peerd.domain.errors import DatabaseUnavailable, NodeNameTaken, NodeReplaced
from peerd.runtime.concurrency.threads import PeriodicStep, PeriodicThread
from peerd.runtime.observability.events import EventBus, MasterDied, NodeSuperseded
from peerd.runtime.observability.log_rotation import LogRotation
from peerd.runtime.process.link import Link
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.nodes import deregister_node, mark_node_silent
from peerd.store.nodes.processes import end_process, register_process, retry_if_replacement
from peerd.store.schema.migrate import require_current_schema

SIGN_OFF_WITHIN: Final = 3.0
"""Seconds that writing the end of the node may take."""


@dataclass(eq=False)
class AgentService:
    """The agent of one node."""

    settings: NodeSettings
    logging: LoggingSettings
    incarnation: str
    """Of its master."""
    silence: float
    """Seconds without a heartbeat after which other nodes count this one as inactive."""
    database: Database
    events: EventBus
    ticker: Callable[[PeriodicStep], PeriodicThread] = PeriodicThread
    """Makes the thread of the heartbeat."""
    subsystems: Sequence[Subsystem] = ()
    """Started in this order, and stopped in the reverse order."""

    def __post_init__(self) -> None:
        self._threads = DatabaseThreads(self.database, threads=2)
        self._replaced = False
        self._has_started = False
        self._has_reported_master_death = False

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the node, before any other process of it starts."""
        self._link = link
        self._outages = OutageTracker(self.events, asyncio.get_running_loop().time)
        self.events.listen(OutageReporter(self.events))
        node_id, self._process_id = await retry_if_replacement(self._register, link, self._outages)
        self._components = ComponentSupervisor(self.events)
        self._start_own_components()
        try:
            for subsystem in self.subsystems:
                await subsystem.start(link, self._components)
        except BaseException:
            await self.stop(0.0)
            raise
        self._has_started = True
        return {"process_id": self._process_id, "node_id": node_id}

    async def run(self) -> None:
        """Wait until cancelled: the components do the work."""
        await asyncio.Event().wait()

    async def receive(self, message: Mapping[str, Any]) -> None:
        if message.get("type") == "death":
            self._orphan_releaser.receive(message)
        for subsystem in self.subsystems:
            subsystem.receive(message)

    async def quiet(self) -> None:
        """Nothing: the agent stops last, and has work until then."""

    async def stop(self, grace: float) -> None:
        """Stop the subsystems, release the claims of dead processes, and write the node's end."""
        master_died = self._link.master_lost
        if master_died:
            self._report_master_death()
        for subsystem in reversed(self.subsystems):
            await subsystem.stop(grace)
        try:
            async with asyncio.timeout(SIGN_OFF_WITHIN):
                await self._components.stop(["orphan release"], within=SIGN_OFF_WITHIN)
                await self._orphan_releaser.finish()
                await self._components.stop(self._components.names, within=SIGN_OFF_WITHIN)
                await self._threads.run(self._sign_off, master_died)
        except (TimeoutError, DatabaseUnavailable):
            return  # the node falls silent instead, which other nodes notice

    def _sign_off(self, connection: Connection, master_died: bool) -> None:  # noqa: FBT001 - called with what it is
        """Write the end of the process and of the node in one transaction: a hurried process may be gone in between."""
        if self._process_id is not None:
            end_process(connection, self._process_id, "its master died" if master_died else "stopped")
        if master_died:
            mark_node_silent(connection, self._link.node, self.incarnation)
        elif not self._link.is_replaced:
            deregister_node(connection, self._link.node, self.incarnation)

    def _report_master_death(self) -> None:
        """Log it, and send it to the subsystems as the alert that the master cannot send any more."""
        if self._has_reported_master_death or not self._has_started:
            return
        self._has_reported_master_death = True
        self.events.emit(MasterDied(node=self._link.node))
        text = f"the master of {self._link.node} has died: its processes end; none is restarted until the node is"
        for subsystem in self.subsystems:
            subsystem.receive({"type": "alert", "alert": AlertKind.MASTER_DIED.value, "text": text})

    async def _register(self) -> tuple[int, int]:
        """Register the node, unless an agent before this one has, and this process."""
        link = self._link
        await asyncio.to_thread(require_current_schema, self.database)
        try:
            node = await register_node(
                self._threads,
                link.node,
                self.incarnation,
                silence=self.silence,
                address=self.settings.address,
                zone=self.settings.zone,
                events=self.events,
            )
        except NodeNameTaken as error:
            if link.is_replacement:  # another incarnation has registered while the node had no agent
                self._stop_replaced_node(error)
            raise
        process_id = await self._threads.run(
            register_process,
            node_id=node.id,
            incarnation=self.incarnation,
            kind=link.kind,
            slot=link.slot,
            role=link.role,
            pid=link.pid,
        )
        return node.id, process_id

    def _start_own_components(self) -> None:
        heartbeat = NodeHeartbeat(
            self.database,
            node=self._link.node,
            incarnation=self.incarnation,
            process_id=self._process_id,
            every=self.settings.heartbeat_every,
            outages=self._outages,
            on_replaced=self._stop_replaced_node,
            ticker=self.ticker,
        )
        self._orphan_releaser = OrphanReleaser(
            self._threads, self.incarnation, self._link.send, self._outages, self.events
        )
        self._components.start("heartbeat", heartbeat.run)
        self._components.start("orphan release", self._orphan_releaser.run)
        if self._link.log_file:
            rotation = (self.logging.max_size, self.logging.keep, self._link.request_log_reopen)
            self._components.start("log rotation", LogRotation(Path(self._link.log_file), *rotation).run)

    def _stop_replaced_node(self, error: NodeReplaced | NodeNameTaken) -> None:
        """Have the master stop the node, once: a second request would cut the stop short."""
        if self._replaced or self._link.master_lost:
            return
        self._replaced = True
        self.events.emit(NodeSuperseded(node=self._link.node, reason=str(error)))
        self._link.request_node_stop()
