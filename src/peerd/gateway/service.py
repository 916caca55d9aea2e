"""The service of a gateway process: the gateway and its server, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from peerd.config.settings import GatewaySettings, QueueSettings
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.ring import Ring, TasksAvailable
from peerd.doorbell.notifier import Notifier
from peerd.doorbell.wake_ups import RingReceiver
from peerd.gateway.gateway import Gateway
from peerd.gateway.operations import Holder
from peerd.gateway.server import GatewayServer
from peerd.runtime.metrics.registry import Sample
from peerd.runtime.process import exit_codes
from peerd.runtime.socket_listener import server_tls
from peerd.shell import HEARTBEAT_INTERVAL, ProcessShell, Service
from peerd.store.processes import end_process

POLL_EVERY: Final = 1.0
"""Seconds between two polls for waiting clients where the doorbell does not work."""
RUNG_POLL_EVERY: Final = 10.0
"""Seconds between two polls for them while it works: a ring may be lost."""
FINISH_WITHIN: Final = 3.0
"""Seconds that the release of the last reservations may take."""


class GatewayService(Service):
    """A process that serves queue clients.

    Args:
        settings: its section.
        queues: the sections ``[queues.NAME]``.
        secret: of the cluster, for rings.
        run_directory: of the node, for the socket of its rings.
        max_update: [manager] max_update; the reservations of a process that is silent for so many seconds are released.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        queues: Mapping[str, QueueSettings],
        secret: str | None,
        run_directory: Path,
        max_update: float,
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._secret = secret
        self._run_directory = run_directory
        self.heartbeat_every = min(HEARTBEAT_INTERVAL, max_update / 3)
        self.limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}

    async def start(self, shell: ProcessShell) -> None:
        """Start the gateway, and accept clients."""
        self._shell = shell
        settings, node, link = self._settings, shell.node, shell.link
        assert node.incarnation is not None
        tls = server_tls(settings.tls_certificate, settings.tls_key)
        self._notifier = Notifier(shell.database, self._secret)
        holder = Holder(node.id, node.incarnation, shell.process_id, round(settings.default_ttr))
        ring = self._notifier.ring
        gateway = Gateway(shell.database, holder, settings, self._queues, ring, shell.events, shell.outages)
        gateway.poll_every = POLL_EVERY
        gateway.start()
        self._gateway = gateway
        self._rings = RingReceiver(shell.process, self._on_ring, self._on_doorbell_status)
        self._rings.open(self._run_directory)
        self._server = GatewayServer(gateway, shell.events, tls)
        self._server.start(list(link.sockets.values()))
        link.report_in_flight(lambda: gateway.connections)
        shell.process.metrics.add_source(lambda: _samples(link.kind, gateway, self._notifier))

    async def run(self) -> None:
        """Poll for clients that wait, until cancelled."""
        await self._gateway.poll_for_waiters()

    async def drain(self, grace: float) -> None:
        """Stop accepting, and let the clients finish.

        The listeners are closed when no other process accepts on them. A process that has a successor serves its
        clients until they close their connections. When the node stops, a connection that holds no job is closed at
        once, and the others have the grace.
        """
        loop, link = asyncio.get_running_loop(), self._shell.link
        until = loop.time() + grace
        is_replaced = link.is_replaced or link.status != exit_codes.OK
        self._server.stop_accepting(close_listeners=link.master_lost or not is_replaced)
        if is_replaced:
            await self._server.wait_until_closed(grace)
        await self._server.drain(max(0.0, until - loop.time()))

    async def close(self, grace: float) -> None:
        """Release what the clients held."""
        database = self._shell.database
        try:
            async with asyncio.timeout(FINISH_WITHIN):
                await self._gateway.operations.finish()
                await asyncio.to_thread(database.run, end_process, self._shell.process_id, "it was stopped")
        except (TimeoutError, DatabaseUnavailable):
            return  # the agent releases what is left
        finally:
            self._rings.close()
            self._gateway.close()
            await asyncio.to_thread(self._notifier.close)

    def _on_ring(self, ring: Ring) -> None:
        if isinstance(ring, TasksAvailable):
            self._gateway.ready.on_ring(ring.queues)

    def _on_doorbell_status(self, works: bool) -> None:  # noqa: FBT001 - called with what it is
        self._gateway.poll_every = RUNG_POLL_EVERY if works else POLL_EVERY
        self._gateway.ready.on_ring(())


def _samples(kind: str, gateway: Gateway, notifier: Notifier) -> Iterable[Sample]:
    """Clients, commands and rings, for the metrics of the process."""
    yield Sample("peerd_gateway_clients", (kind,), gateway.connections)
    yield Sample("peerd_rings_sent_total", (), notifier.rings_sent)
    for command, count in gateway.commands.items():
        yield Sample("peerd_gateway_commands_total", (kind, command or "unknown"), count)
