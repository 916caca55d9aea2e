"""The service of a gateway process: registration, the engine and the server, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from peerd.config.settings import GatewaySettings, QueueSettings
from peerd.domain.errors import DatabaseUnavailable
from peerd.doorbell.notifier import Notifier
from peerd.gateway.engine import Engine, EngineOptions
from peerd.gateway.operations import Holder
from peerd.gateway.process_state import GatewayOptions, GatewayState
from peerd.gateway.server import GatewayServer
from peerd.gateway.wake_ups import RingReceiver
from peerd.runtime.metrics.samples import Sample
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process import exit_codes
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import LIMITS_ACTION, ProcessContext
from peerd.runtime.tls import server_tls
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.nodes.processes import (
    HEARTBEAT_INTERVAL,
    end_process,
    keep_heartbeat,
    register_this_process_with_retry,
)

FINISH_WITHIN: Final = 3.0
"""Seconds that the release of the last reservations may take."""


class GatewayService:
    """A process that serves queue clients.

    Args:
        settings: its section.
        queues: the sections ``[queues.NAME]``.
        database: closed at the end.
        secret: of the cluster, for rings.
        run_directory: of the node, for the socket of its rings.
        events: what happens.
        max_update: [manager] max_update; the reservations of a process that is silent for so many seconds are released.
        attach: called with the process before it serves, for what else runs in it.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        queues: Mapping[str, QueueSettings],
        database: Database,
        secret: str | None,
        run_directory: Path,
        events: EventBus,
        max_update: float,
        attach: Callable[[ProcessContext], object] = lambda _: None,
    ) -> None:
        self._attach = attach
        self._settings = settings
        self._queues = queues
        self._database = database
        self._secret = secret
        self._run_directory = run_directory
        self._events = events
        self._heartbeat_every = min(HEARTBEAT_INTERVAL, max_update / 3)

    async def start(self, link: Link) -> Mapping[str, object]:
        settings = self._settings
        self._link = link
        self._process = ProcessContext(link, self._events)
        self._attach(self._process)
        resource_limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}  # the agent enforces them
        self._process.messenger.on(LIMITS_ACTION, lambda _: resource_limits)
        self._outages = OutageTracker(self._events, asyncio.get_running_loop().time)
        tls = server_tls(settings.tls_certificate, settings.tls_key)
        node, self._process_id = await register_this_process_with_retry(self._database, link, self._outages)
        assert node.incarnation is not None
        self._notifier = Notifier(self._database, self._secret)
        holder = Holder(node.id, node.incarnation, self._process_id, round(settings.default_ttr))
        options = EngineOptions(queues=self._queues)
        self._engine = Engine(self._database, holder, options, self._notifier.ring, self._events, self._outages)
        self._engine.start()
        self._rings = RingReceiver(self._process, self._engine, self._run_directory)
        state = GatewayState(self._engine, gateway_options(settings))
        self._server = GatewayServer(state, self._events, tls)
        self._server.start(list(link.sockets.values()))
        link.report_in_flight(lambda: state.connections)
        self._process.metrics.add_source(lambda: _samples(link.kind, state, self._notifier))
        return {"process_id": self._process_id}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._engine.poll_for_waiters(), name="poll")
            heartbeat = keep_heartbeat(
                self._database, self._process_id, self._outages, self._events, self._heartbeat_every
            )
            group.create_task(heartbeat, name="heartbeat")

    async def receive(self, message: Mapping[str, object]) -> None:
        """Handle a message of another process."""
        if message.get("type") != "ready":
            self._process.messenger.receive(message)

    async def quiet(self) -> None:
        """Stop accepting; the listeners are closed when no other process accepts on them."""
        self._is_replaced = self._link.is_replaced or self._link.status != exit_codes.OK
        self._server.stop_accepting(close_listeners=self._link.master_lost or not self._is_replaced)

    async def stop(self, grace: float) -> None:
        """Let the clients finish, then release what they hold.

        A process that has a successor serves its clients until they close their connections. When the node stops, a
        connection that holds no job is closed at once, and the others have the grace.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        if self._is_replaced:
            await self._server.wait_until_closed(grace)
        await self._server.drain(max(0.0, until - loop.time()))
        await self._process.finish(max(0.0, until - loop.time()))
        try:
            async with asyncio.timeout(FINISH_WITHIN):
                await self._engine.finish()
                await asyncio.to_thread(self._database.run, end_process, self._process_id, "it was stopped")
        except (TimeoutError, DatabaseUnavailable):
            return  # the agent releases what is left
        finally:
            self._rings.close()
            self._engine.close()
            await asyncio.to_thread(self._notifier.close)
            self._database.close()


def _samples(kind: str, state: GatewayState, notifier: Notifier) -> Iterable[Sample]:
    """Clients, commands and rings, for the metrics of the process."""
    yield Sample("peerd_gateway_clients", (kind,), state.connections)
    yield Sample("peerd_rings_sent_total", (), notifier.rings_sent)
    for command, count in state.commands.items():
        yield Sample("peerd_gateway_commands_total", (kind, command or "unknown"), count)


def gateway_options(settings: GatewaySettings) -> GatewayOptions:
    """The limits and the access of a section."""
    return GatewayOptions(
        protocols=settings.protocols,
        max_job_size=settings.max_job_size,
        max_connections=settings.max_connections,
        max_buffered=settings.max_buffered_bytes,
        max_buffered_total=settings.max_buffered_total,
        head_timeout=settings.head_timeout,
        body_timeout=settings.body_timeout,
        token=settings.token,
    )
