"""The agent's service: registers the node, writes its heartbeat, runs the subsystems, and signs the node off.

At most one living incarnation of a node may have its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd import __version__
from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.agent.database_health import OutageReporter, examine_periodically
from peerd.agent.orphans import OrphanReleaser
from peerd.config.settings import LoggingSettings, NodeSettings
from peerd.domain.alert import AlertKind
from peerd.domain.errors import DatabaseUnavailable, NodeNameTaken, NodeReplaced, RowLocked
from peerd.domain.pacing import LONGEST_PAUSE, Backoff
from peerd.runtime.concurrency import PeriodicStep, PeriodicThread, call_on_loop
from peerd.runtime.observability import events
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import node_registered, waiting_for_node
from peerd.runtime.observability.log_output import keep_rotated
from peerd.shell import ProcessShell, Service, register_start, retry_if_replacement
from peerd.store import nodes
from peerd.store.connection.database import DatabaseThreads
from peerd.store.nodes import Node
from peerd.store.processes import end_earlier_processes, end_process, heartbeat_process
from peerd.store.schema.migrate import require_current_schema

SIGN_OFF_WITHIN: Final = 3.0
"""Seconds that writing the end of the node may take."""


@dataclass(eq=False)
class AgentService(Service):
    """The agent of one node.

    Args:
        incarnation: of its master.
        silence: seconds without a heartbeat after which other nodes count this one as inactive.
        options: [agent.options].
        ticker: makes the thread of the heartbeat.
        subsystems: started in this order, and stopped in the reverse order.
    """

    heartbeat_every = None  # `NodeHeartbeat` writes it

    settings: NodeSettings
    logging: LoggingSettings
    incarnation: str
    silence: float
    options: Mapping[str, Any] = field(default_factory=dict)
    ticker: Callable[[PeriodicStep], PeriodicThread] = PeriodicThread
    subsystems: Sequence[Subsystem] = ()

    def __post_init__(self) -> None:
        self._replaced = False
        self._has_started = False
        self._has_reported_master_death = False

    async def register(self, shell: ProcessShell) -> tuple[Node, int]:
        """Register the node, before any other process of it starts, and the agent's process."""
        self._shell, self._link = shell, shell.link
        self._threads = DatabaseThreads(shell.database, threads=2)
        shell.events.listen(OutageReporter(shell.events), (events.DatabaseOutageStarted, events.DatabaseOutageEnded))
        return await retry_if_replacement(self._register, shell.link, shell.outages)

    async def _register(self) -> tuple[Node, int]:
        """Register the node, unless an agent before this one has, and this process."""
        link = self._link
        await asyncio.to_thread(require_current_schema, self._shell.database)
        try:
            about = (link.node, self.incarnation, self.settings)
            node = await register_node(self._threads, *about, silence=self.silence, events=self._shell.events)
        except NodeNameTaken as error:
            if link.is_replacement:  # another incarnation has registered while the node had no agent
                self._stop_replaced_node(error)
            raise
        return node, await self._threads.run(register_start, link, node.id, self.incarnation)

    async def start(self, shell: ProcessShell) -> None:
        """Start the agent's own components, and the subsystems."""
        self._components = ComponentSupervisor(shell.events)
        self._start_own_components(shell)
        try:
            for subsystem in self.subsystems:
                await subsystem.start(shell, self._components)
        except BaseException:
            await self.drain(0.0)
            await self.close(0.0)
            raise
        self._has_started = True

    async def run(self) -> None:
        """Wait until cancelled: the components do the work."""
        await asyncio.Event().wait()

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Pass a frame on to what it is for."""
        if message.get("type") == "death":
            self._orphan_releaser.receive(message)
        for subsystem in self.subsystems:
            subsystem.receive(message)

    async def drain(self, grace: float) -> None:
        """Stop the subsystems."""
        self._master_died = self._link.master_lost
        if self._master_died:
            self._report_master_death()
        for subsystem in reversed(self.subsystems):
            await subsystem.stop(grace)

    async def close(self, grace: float) -> None:
        """Release the claims of dead processes, and write the node's end."""
        try:
            async with asyncio.timeout(SIGN_OFF_WITHIN):
                await self._components.stop(["orphan release"], within=SIGN_OFF_WITHIN)
                await self._orphan_releaser.finish()
                await self._components.stop(self._components.names, within=SIGN_OFF_WITHIN)
                await self._threads.run(self._sign_off)
        except (TimeoutError, DatabaseUnavailable):
            return  # the node falls silent instead, which other nodes notice

    def _sign_off(self, connection: Connection) -> None:
        """Write the end of the process and of the node in one transaction: a hurried process may be gone in between."""
        end_process(connection, self._shell.process_id, "its master died" if self._master_died else "stopped")
        if self._master_died:
            nodes.mark_node_silent(connection, self._link.node, self.incarnation)
        elif not self._link.is_replaced:
            nodes.deregister_node(connection, self._link.node, self.incarnation)

    def _report_master_death(self) -> None:
        """Log it, and send it to the subsystems as the alert that the master cannot send any more."""
        if self._has_reported_master_death or not self._has_started:
            return
        self._has_reported_master_death = True
        self._shell.events.emit(events.MasterDied(node=self._link.node))
        text = f"the master of {self._link.node} has died: its processes end; none is restarted until the node is"
        for subsystem in self.subsystems:
            subsystem.receive({"type": "alert", "alert": AlertKind.MASTER_DIED.value, "text": text})

    def _start_own_components(self, shell: ProcessShell) -> None:
        every = self.settings.heartbeat_every
        heartbeat = NodeHeartbeat(shell, self.incarnation, every, self._stop_replaced_node, self.ticker)
        self._orphan_releaser = OrphanReleaser(
            self._threads, self.incarnation, self._link.send, shell.outages, shell.events
        )
        self._components.start("heartbeat", heartbeat.run)
        self._components.start("orphan release", self._orphan_releaser.run)
        if shell.database.name != "sqlite":  # which has nothing to examine
            examining = partial(examine_periodically, shell.database, shell.node.name, shell.events)
            self._components.start("database health", examining)
        if self._link.log_file:
            rotation = (self.logging.max_size, self.logging.keep, self._link.request_log_reopen)
            rotating = partial(keep_rotated, Path(self._link.log_file), *rotation)
            self._components.start("log rotation", rotating)

    def _stop_replaced_node(self, error: NodeReplaced | NodeNameTaken) -> None:
        """Have the master stop the node, once: a second request would cut the stop short."""
        if self._replaced or self._link.master_lost:
            return
        self._replaced = True
        self._shell.events.emit(events.NodeSuperseded(node=self._link.node, reason=str(error)))
        self._link.request_node_stop()


# ---------------------------------------------------------------- the row of the node


CHECKS_WITHIN_SILENCE: Final = 20
"""How often an earlier incarnation is read until its silence counts as its end."""
RETRY_AFTER: Final = 0.2
"""Seconds until a heartbeat that the database did not answer is repeated; they grow up to the heartbeat's interval."""
PROCESS_HEARTBEAT_INTERVAL: Final = 60.0
"""Seconds between two heartbeats of the agent's process, whose record is purged after days of silence."""
END_WITHIN: Final = 3.0
"""Seconds that the heartbeat being written may take to end."""


async def register_node(
    database: DatabaseThreads,
    name: str,
    incarnation: str,
    settings: NodeSettings,
    *,
    silence: float,
    events: EventBus,
) -> Node:
    """Register an incarnation of a node, or find it registered by an agent before this one.

    Another incarnation counts as ended after `silence` seconds without a heartbeat. Its claims are not touched: where
    only the master was killed, its processes may still finish; if they are dead too, the tasks are rescued later.

    Raises:
        NodeNameTaken: another incarnation of this name is alive.
    """
    while True:
        node = await database.read(nodes.find_node, name)
        if node is not None and node.incarnation == incarnation:
            return await database.run(nodes.heartbeat, name, incarnation)
        if node is not None and node.incarnation is not None:
            await _wait_until_silent(database, node, silence, events)
        registered = await database.run(
            nodes.register_incarnation,
            name,
            incarnation,
            replaces=None if node is None else node.incarnation,
            address=settings.address,
            zone=settings.zone,
            version=__version__,
        )
        if registered is not None:
            break
    node = await database.run(nodes.heartbeat, name, incarnation)
    await database.run(end_earlier_processes, node.id, incarnation)
    events.emit(node_registered(name, node.id))
    return node


async def _wait_until_silent(database: DatabaseThreads, previous: Node, silence: float, events: EventBus) -> None:
    """Wait until an earlier incarnation has been silent for long enough; a heartbeat of it proves that it is alive."""
    now = asyncio.get_running_loop().time
    began = now()
    logged = False
    while await database.read(nodes.is_node_alive, previous.name, silence):
        found = await database.read(nodes.find_node, previous.name)
        if found is None or found.incarnation != previous.incarnation:
            return
        if found.checked_at != previous.checked_at or now() - began > 3 * silence:
            raise NodeNameTaken(previous.name, found.address)
        if not logged:
            logged = True
            events.emit(waiting_for_node(previous.name, silence))
        await asyncio.sleep(silence / CHECKS_WITHIN_SILENCE)


@dataclass(eq=False)
class NodeHeartbeat:
    """Writes the heartbeat of a node and of its agent's process, in a thread.

    User code that blocks the agent's event loop does not stop it.

    Args:
        every: seconds between two heartbeats.
        on_replaced: called on the event loop when another incarnation of the node has registered.
        ticker: makes the thread.
    """

    shell: ProcessShell
    incarnation: str
    every: float
    on_replaced: Callable[[NodeReplaced], None]
    ticker: Callable[[PeriodicStep], PeriodicThread]

    def __post_init__(self) -> None:
        self._next_process_heartbeat = 0.0
        self._pauses = Backoff(first=RETRY_AFTER, longest=min(self.every, LONGEST_PAUSE))

    async def run(self) -> None:
        """Write heartbeats until cancelled; an unexpected exception of the thread is raised here."""
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        ticker = self.ticker(self._tick)
        ticker.start()
        try:
            await self._failure
        except asyncio.CancelledError:
            ticker.stop()
            await asyncio.to_thread(ticker.join, END_WITHIN)  # a heartbeat after the end would look like a fault
            raise
        finally:
            ticker.stop()

    def _tick(self, now: float) -> float:
        run, outages = self.shell.database.run_short, self.shell.outages
        try:
            run(nodes.heartbeat_only, self.shell.node.name, self.incarnation)
            if now >= self._next_process_heartbeat:
                run(heartbeat_process, self.shell.process_id)
                self._next_process_heartbeat = now + PROCESS_HEARTBEAT_INTERVAL
        except DatabaseUnavailable as error:
            outages.lost(error)
            return self._pauses.next()
        except RowLocked:  # no outage: the database has answered
            return self._pauses.next()
        except NodeReplaced as error:
            call_on_loop(self._loop, self.on_replaced, error)
        except Exception as error:  # noqa: BLE001 - the component fails, and is restarted
            call_on_loop(self._loop, self._fail, error)
        else:
            outages.found()
            self._pauses.reset()
        return self.every

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
