"""The agent's side of the doorbell: receives the rings for its node and wakes the node's worker processes.

Rings arrive at the `UdpListener` or `PostgresqlListener`. Workers are woken by their wake-up sockets, or by a message
where a process has none. The agent also pings its own doorbell (`DoorbellHealth`), stages the tasks that fall due
(`DueTaskStager`), and passes on messages for all nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.agent.doorbell_health import DoorbellHealth
from peerd.agent.due_task_stager import DueTaskStager
from peerd.agent.ring_listeners import PostgresqlListener, UdpListener, advertised_host, bound_host
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain import ring as rings
from peerd.domain.errors import MessengerFull
from peerd.domain.ring import Broadcast, Coalescer, Ring, TasksAvailable
from peerd.doorbell import notifier
from peerd.doorbell.cluster_secret import read_secret
from peerd.doorbell.datagram import ClusterClock, NotificationVerifier, Verifier
from peerd.doorbell.notifier import Notifier
from peerd.doorbell.wake_ups import WakeUpSender
from peerd.runtime.frames import WEB_ROLE
from peerd.runtime.inbox import Message
from peerd.runtime.messenger import BROADCAST_ACTION, RESERVED_PREFIX, Messenger
from peerd.runtime.metrics.registry import Sample
from peerd.runtime.observability.log_messages import cluster_broadcast_failed
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION
from peerd.shell import ProcessShell
from peerd.store.connection.database import DatabaseThreads
from peerd.store.due import NextDue
from peerd.store.outcomes import database_now
from peerd.store.schedules import StoredSchedulesState

COMPONENT_NAMES: Final = ("doorbell", "stager")
WAKE_UP_EVERY: Final = 0.005
"""Shortest time between two wake-ups of the node's workers, in seconds; the first one after a pause goes at once."""
NO_SECRET: Final = "there is no secret: give every node the same one in [cluster] secret_file"  # noqa: S105


@dataclass(eq=False)
class DoorbellSubsystem(Subsystem):
    """The doorbell of a node.

    Args:
        on_request: called when a request waits for this node, or may.
        on_schedules: called with the state of the schedules that are in the database; None: it may have changed.
    """

    node: NodeSettings
    cluster: ClusterSettings
    incarnation: str
    on_request: Callable[[], object]
    on_schedules: Callable[[StoredSchedulesState | None], object]

    def __post_init__(self) -> None:
        self._secret: str | None = None
        self._wake_up_sender = WakeUpSender(self.node.run_directory)
        self._cluster_clock = ClusterClock()
        self._components: ComponentSupervisor | None = None
        self._coalescer = Coalescer()
        self._wake_up_timer: asyncio.TimerHandle | None = None
        self._last_wake_up = -WAKE_UP_EVERY
        self.rings_received = 0
        """Without pings, since the agent began."""

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        self._link, self._database, self._events = shell.link, shell.database, shell.events
        self._threads = DatabaseThreads(shell.database, threads=2)
        self._uses_notify = shell.database.name == "postgresql"
        transport = "notify" if self._uses_notify else "datagrams"
        self._health = DoorbellHealth(transport, shell.events, self._send_status_to_workers)
        self._messenger: Messenger = shell.process.messenger
        self._messenger.on(DOORBELL_ACTION, lambda _: self._health.to_json(self.rings_received))
        self._messenger.on(BROADCAST_ACTION, self._broadcast_to_cluster)
        self._messenger.on_change(self._send_status_to_workers)
        self._messenger.on_change(self._wake_up_sender.remove_stale)
        with suppress(OSError):
            self._wake_up_sender.open()
        asked_at = self._cluster_clock.steady()
        self._cluster_clock.synchronize(await self._threads.read(database_now), asked_at)
        self._previous_endpoint = notifier.parse_endpoint(self.incarnation, shell.node.address)
        self._notifier = Notifier(self._database, open_transport=self._open_transport)
        self._stager = DueTaskStager(
            self._threads, shell.node.id, self.ring, self._cluster_clock, self.incarnation, self._examine_check
        )
        shell.process.metrics.add_source(self._samples)
        self._components = components
        components.start(COMPONENT_NAMES[0], self._run_notify if self._uses_notify else self._run_udp)
        components.start(COMPONENT_NAMES[1], self._stager.run)

    async def stop(self, grace: float) -> None:
        if self._components is None:
            return
        await self._components.stop(COMPONENT_NAMES, within=1.0)
        await asyncio.to_thread(self._notifier.close)
        self._wake_up_sender.close()

    def ring(self, ring: Ring) -> None:
        """Ring at all nodes, this one included; called on the agent's event loop. Does nothing before the start."""
        if self._components is not None:
            self.receive_ring(ring)
            self._notifier.ring(ring)

    def _examine_check(self, found: NextDue) -> None:
        """Find the requests and the changed schedules that no ring has announced."""
        if found.has_requests:
            self.on_request()
        if found.schedules_state is not None:
            self.on_schedules(found.schedules_state)

    def _samples(self) -> Iterable[Sample]:
        """Rings and the state of the doorbell, for the metrics of the node."""
        yield Sample("peerd_doorbell_works", (), 1.0 if self._health.problem is None else 0.0)
        yield Sample("peerd_rings_received_total", (), self.rings_received)
        yield Sample("peerd_rings_sent_total", (), self._notifier.rings_sent)
        for reason, count in self._health.rejected.counts.copy().items():
            yield Sample("peerd_rings_rejected_total", (str(reason),), count)

    # ---------------------------------------------------------------- receiving

    def receive_ring(self, ring: Ring) -> None:
        """Handle a received ring; wake-ups of workers within 5 ms become one."""
        self.rings_received += not isinstance(ring, rings.Ping)
        match ring:
            case rings.Ping(word):
                self._health.receive_ping(word)
            case rings.TaskScheduled():
                self._stager.receive(ring)
            case Broadcast():
                self._broadcast_on_node(ring)
            case rings.NodeRequested(node):
                if node == self._link.node:
                    self.on_request()
            case rings.SchedulesChanged():
                self.on_schedules(None)
            case _:
                self._coalescer.add(ring)
                if self._wake_up_timer is None:
                    loop = asyncio.get_running_loop()
                    pause = self._last_wake_up + WAKE_UP_EVERY - loop.time()
                    if pause > 0:
                        self._wake_up_timer = loop.call_later(pause, self._wake_up)
                    else:
                        self._wake_up()

    def _wake_up(self) -> None:
        self._wake_up_timer = None
        self._last_wake_up = asyncio.get_running_loop().time()
        for ring in self._coalescer.take():
            self._wake_workers(ring)

    async def _run_notify(self) -> None:
        self._secret = self.cluster.secret
        listener = PostgresqlListener(
            self._database,
            NotificationVerifier(self._secret, self._cluster_clock, self.incarnation),
            self.receive_ring,
            self._health.on_listener_change,
            self._health.rejected,
        )
        transport = notifier.NotifyTransport(self._database, self._secret, cluster_clock=self._cluster_clock)

        async def find_unreachable() -> Sequence[str]:
            return ()

        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            group.create_task(self._health.run(transport.send, find_unreachable))

    async def _run_udp(self) -> None:
        self._secret = read_secret(self._database.url, self.cluster.secret, make=True)
        if self._secret is None:
            self._health.set_problem(NO_SECRET)
            await asyncio.Event().wait()
            return
        verifier = Verifier(self._secret, self.incarnation, self._cluster_clock)
        listener = UdpListener(verifier, self.receive_ring, self._health.rejected)
        transport = notifier.DatagramTransport(self._database, self._secret, cluster_clock=self._cluster_clock)
        try:
            endpoint = await self._open_listener(listener)
            await self._health.run(
                lambda pings: transport.send_to([endpoint], pings),
                lambda: self._threads.read(notifier.nodes_without_endpoint),
            )
        except OSError as error:
            self._health.set_problem(f"UDP port {self.cluster.port}: {(error.strerror or str(error)).lower()}")
            raise
        finally:
            listener.close()
            transport.close()

    async def _open_listener(self, listener: UdpListener) -> notifier.Endpoint:
        url = self._database.url
        host = advertised_host(self.node, url)
        endpoint = notifier.Endpoint(self.incarnation, host, self._bind(listener, bound_host(self.cluster, host, url)))
        self._health.address = endpoint.address
        await self._threads.run(notifier.write_endpoint, self._link.node, self.incarnation, endpoint.address)
        return endpoint

    def _bind(self, listener: UdpListener, host: str) -> int:
        """Bind the port of the agent before this one, to which other nodes still send."""
        if self._previous_endpoint is not None and not self.cluster.port:
            with suppress(OSError):
                return listener.open(host, self._previous_endpoint.port)
        return listener.open(host, self.cluster.port)

    # ---------------------------------------------------------------- to the node's processes

    def _wake_workers(self, ring: Ring) -> None:
        """By their wake-up sockets; by a message where there is none, and for a ring that the sockets do not carry.

        Gateway processes get the rings for available tasks alone. A web process gets these by its socket or not at all:
        it has none while it has no viewers.
        """
        processes = self._messenger.workers
        if isinstance(ring, TasksAvailable):
            processes += self._messenger.gateways
            unreached = (process for process in processes if not self._wake_up_sender.send(process.pid, ring))
            processes = tuple(process for process in unreached if process.role != WEB_ROLE)
        data = msgspec.to_builtins(ring)
        with suppress(MessengerFull):
            for process in processes:
                self._messenger.send_to(process.pid, RING_ACTION, data).is_awaited = True

    def _send_status_to_workers(self) -> None:
        """Workers that miss it poll as if the doorbell did not work."""
        status = {"works": self._health.problem is None}
        with suppress(MessengerFull):
            if self._messenger.workers:
                self._messenger.send_to_workers(DOORBELL_ACTION, status).is_awaited = True
            for gateway in self._messenger.gateways:
                self._messenger.send_to(gateway.pid, DOORBELL_ACTION, status).is_awaited = True

    # ---------------------------------------------------------------- to other nodes

    def _open_transport(self) -> notifier.Transport | None:
        """The transport of the agent's own rings, which its own node gets without it."""
        clock, me = self._cluster_clock, self.incarnation
        if self._uses_notify:
            return notifier.NotifyTransport(self._database, self._secret, excluded_incarnation=me, cluster_clock=clock)
        if self._secret is None:
            return None
        return notifier.DatagramTransport(self._database, self._secret, excluded_incarnation=me, cluster_clock=clock)

    def _broadcast_to_cluster(self, message: Message) -> None:
        """Pass on a message of a process of this node for all nodes."""
        broadcast = Broadcast(str(message.data["action"]), message.data["data"])
        self._broadcast_on_node(broadcast)
        if self._secret is not None:
            self._notifier.ring(broadcast)
        else:
            self._events.emit(cluster_broadcast_failed(broadcast.action, NO_SECRET))

    def _broadcast_on_node(self, broadcast: Broadcast) -> None:
        if not broadcast.action.startswith(RESERVED_PREFIX):
            with suppress(MessengerFull):
                self._messenger.broadcast(broadcast.action, broadcast.data)
