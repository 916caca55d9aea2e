"""The part of the agent that hears the doorbell, knows whether it works, and sees to what falls due."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from peerd.agent.components import ComponentSupervisor
from peerd.agent.doorbell.addressing import advertised_host, bound_host
from peerd.agent.doorbell.postgresql_listener import UNSIGNED_RATE, UNSIGNED_RATE_WITH_SECRET, PostgresqlListener
from peerd.agent.doorbell.refusals import Refusals
from peerd.agent.doorbell.stager import DueTaskStager
from peerd.agent.doorbell.status import DoorbellStatus
from peerd.agent.doorbell.udp_listener import UdpListener
from peerd.agent.doorbell.wake_up_debouncer import WakeUpDebouncer
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain.errors import DatabaseUnavailable, MessengerFull
from peerd.domain.ring import Broadcast, Ping, Ring, TasksAvailable
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.doorbell.cluster_secret import read_secret
from peerd.doorbell.datagram import Verifier
from peerd.doorbell.endpoints import Endpoint, format_address, nodes_without_endpoint, parse_endpoint, write_endpoint
from peerd.doorbell.notifier import Notifier
from peerd.doorbell.transports import DatagramTransport, NotificationVerifier, NotifyTransport, Transport
from peerd.doorbell.wake_up_socket import WakeUpSender
from peerd.runtime.messages.inbox import Message
from peerd.runtime.messages.messenger import BROADCAST_ACTION, RESERVED_PREFIX, Messenger
from peerd.runtime.observability.events import ClusterBroadcastFailed, DoorbellStatusChanged, EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.nodes.nodes import find_node
from peerd.store.outcomes.recording import database_now

COMPONENT_NAMES: Final = ("bell", "due tasks")
"""Of the components."""
PING_EVERY: Final = 30.0
"""Seconds between two trials of a bell that works."""
PING_AGAIN_AFTER: Final = 5.0
"""The same, of one that does not."""
PING_WITHIN: Final = 1.0
"""Seconds that a trial may take."""
NO_SECRET: Final = "there is no secret: give every node the same one in [cluster] secret_file"  # noqa: S105


class DoorbellComponent:
    """The doorbell of a node.

    Args:
        node: its settings.
        cluster: likewise.
        process: gives the agent's process, once the parts before this one have begun.
        database: of the agent's process.
        incarnation: of this life of the node.
        events: what happens.
    """

    def __init__(
        self,
        node: NodeSettings,
        cluster: ClusterSettings,
        process: Callable[[], ProcessContext],
        database: Database,
        *,
        incarnation: str,
        events: EventBus,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._process = process
        self._database = database
        self._incarnation = incarnation
        self._events = events
        self._uses_notify = database.name == "postgresql"
        self._secret: str | None = None
        self._udp_listener: UdpListener | None = None
        self._own_endpoint: Endpoint | None = None
        self._transport: Transport | None = None
        self._wake_up_sender = WakeUpSender(node.run_directory)
        self._refusals = Refusals(events)
        self._time = ClusterClock()
        self._ping_task: asyncio.Future[None] | None = None
        self._ping: tuple[str, asyncio.Event] | None = None
        self._problem: str | None = "it has not been tried yet"
        self._is_working: bool | None = None
        self._components: ComponentSupervisor | None = None

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Begin to hear."""
        self._link = link
        self._ping_needed = asyncio.Event()
        self._threads = DatabaseThreads(self._database, threads=2)
        self._messenger: Messenger = self._process().messenger
        self._messenger.on(DOORBELL_ACTION, lambda _: self.status().to_json())
        self._messenger.on(BROADCAST_ACTION, self._broadcast_to_cluster)
        self._messenger.on_change(self._send_status_to_workers)
        self._messenger.on_change(self._wake_up_sender.remove_stale)
        with suppress(OSError):
            self._wake_up_sender.open()
        node = await self._threads.read(find_node, link.node)
        assert node is not None
        asked_at = self._time.steady()
        self._time.synchronize(await self._threads.read(database_now), asked_at)
        self._previous_endpoint = parse_endpoint(self._incarnation, node.address)
        self._notifier = Notifier(self._database, open_transport=self._open_transport)
        self._stager = DueTaskStager(self._threads, node.id, self.ring, self._time)
        self._debouncer = WakeUpDebouncer(
            self._wake_workers, self._stager.receive, self._broadcast_on_node, self._receive_ping
        )
        self._components = components
        components.start(COMPONENT_NAMES[0], self._run_notify if self._uses_notify else self._run_udp)
        components.start(COMPONENT_NAMES[1], self._stager.run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Deaths are the concern of others: what they release is rung when it is released."""

    async def stop(self, grace: float) -> None:
        """Hear no more."""
        if self._components is None:
            return
        await self._components.stop(COMPONENT_NAMES, within=1.0)
        await asyncio.to_thread(self._notifier.close)
        self._wake_up_sender.close()

    def status(self) -> DoorbellStatus:
        """How the bell is."""
        own, last = self._own_endpoint, self._refusals.last
        return DoorbellStatus(
            way="notify" if self._uses_notify else "datagrams",
            reason=self._problem,
            address=None if own is None else format_address(own.host, own.port),
            heard=self._debouncer.heard,
            refused={str(why): count for why, count in self._refusals.counts.copy().items()},
            last_refused=None if last is None else "{}, from {}".format(*last),
        )

    # ---------------------------------------------------------------- hearing

    async def _run_notify(self) -> None:
        """Listen to PostgreSQL, and try from time to time whether one hears."""
        self._secret = self._cluster.secret
        listening = PostgresqlListener(
            self._database,
            NotificationVerifier(self._secret, self._time, me=self._incarnation),
            self._debouncer.receive,
            self._on_listener_change,
            self._refusals,
            TokenBucket(*(UNSIGNED_RATE if self._secret is None else UNSIGNED_RATE_WITH_SECRET)),
        )
        self._transport = NotifyTransport(self._database, self._secret, cluster_clock=self._time)
        async with asyncio.TaskGroup() as group:
            group.create_task(listening.run())
            group.create_task(self._ping_periodically())

    async def _run_udp(self) -> None:
        """Open the door, tell the others where it is, and try from time to time whether one hears."""
        self._secret = read_secret(self._database.url, self._cluster.secret, make=True)
        if self._secret is None:
            self._set_problem(NO_SECRET)
            await asyncio.Event().wait()
            return
        self._udp_listener = UdpListener(
            Verifier(self._secret, self._incarnation, self._time), self._debouncer.receive, self._refusals
        )
        self._transport = self._open_transport()
        try:
            await self._open_listener(self._udp_listener)
            await self._ping_periodically()
        except OSError as error:
            self._set_problem(f"UDP port {self._cluster.port}: {(error.strerror or str(error)).lower()}")
            raise
        finally:
            self._udp_listener.close()

    async def _open_listener(self, door: UdpListener) -> None:
        url = self._database.url
        host = advertised_host(self._node, url)
        bound = bound_host(self._cluster, host, url)
        self._own_endpoint = Endpoint(self._incarnation, host, self._bind(door, bound))
        await self._threads.run(
            write_endpoint, self._link.node, self._incarnation, format_address(host, self._own_endpoint.port)
        )

    def _bind(self, door: UdpListener, host: str) -> int:
        """A later agent takes the port of an earlier one, where others still ring."""
        if self._previous_endpoint is not None and not self._cluster.port:
            with suppress(OSError):
                return door.open(host, self._previous_endpoint.port)
        return door.open(host, self._cluster.port)

    def _on_listener_change(self, reason: str | None) -> None:
        if reason is not None:
            self._set_problem(reason)
        else:
            self._ping_needed.set()

    # ---------------------------------------------------------------- whether it works

    async def _ping_periodically(self) -> None:
        while True:
            self._ping_needed.clear()
            try:
                reason = await self._find_problem()
            except DatabaseUnavailable as error:
                reason = str(error)
            self._set_problem(reason)
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY if reason is None else PING_AGAIN_AFTER):
                    await self._ping_needed.wait()

    async def _find_problem(self) -> str | None:
        """Try it; why it is not known to work, None when it is."""
        if not await self._receives_own_ping():
            return self._lost_ping_problem()
        unreachable = [] if self._uses_notify else await self._threads.read(nodes_without_endpoint)
        if unreachable:
            return f"{', '.join(unreachable)} cannot be rung at: give the same [cluster] secret there"
        return self._refusals.unheard_sender_problem()

    async def _receives_own_ping(self) -> bool:
        if self._ping_task is not None and not self._ping_task.done():
            return False  # the trial before is not sent yet; each would keep one more thread waiting
        word, heard = secrets.token_hex(8), asyncio.Event()
        self._ping = (word, heard)
        try:
            async with asyncio.timeout(PING_WITHIN):
                self._ping_task = asyncio.ensure_future(asyncio.to_thread(self._send_to_self, [Ping(word)]))
                self._ping_task.add_done_callback(_consume_exception)
                await asyncio.shield(self._ping_task)
                await heard.wait()
        except TimeoutError:
            return False
        finally:
            self._ping = None
        return True

    def _send_to_self(self, rings: Sequence[Ring]) -> None:
        if isinstance(self._transport, DatagramTransport) and self._own_endpoint is not None:
            self._transport.send_to([self._own_endpoint], rings)
        elif self._transport is not None:
            self._transport.send(rings)

    def _receive_ping(self, word: str) -> None:
        if self._ping is not None and self._ping[0] == word:
            self._ping[1].set()

    def _lost_ping_problem(self) -> str:
        if self._own_endpoint is None:
            return "a notification of our own did not come back within a second"
        address = format_address(self._own_endpoint.host, self._own_endpoint.port)
        return f"a datagram to {address} did not arrive: is that this machine ([node] address), and UDP not blocked?"

    def _set_problem(self, reason: str | None) -> None:
        """Say what has changed: in the log, and to the workers, who poll less while it works."""
        was_working, works = self._is_working, reason is None
        self._problem, self._is_working = reason, works
        if works is not was_working:
            self._events.emit(DoorbellStatusChanged(works=works, reason=reason))
            self._send_status_to_workers()

    # ---------------------------------------------------------------- what the node's processes are told

    def _send_status_to_workers(self) -> None:
        self._send(DOORBELL_ACTION, {"works": self._problem is None})

    def _wake_workers(self, ring: Ring) -> None:
        """At their ears; by a message who has none, and of what is not for ears."""
        workers = self._messenger.workers
        if isinstance(ring, TasksAvailable):
            workers = tuple(worker for worker in workers if not self._wake_up_sender.send(worker.pid, ring))
        data = msgspec.to_builtins(ring)
        with suppress(MessengerFull):
            for worker in workers:
                self._messenger.send_to(worker.pid, RING_ACTION, data).is_awaited = True

    def _send(self, action: str, data: object) -> None:
        """To the workers, if there are any; whoever misses it polls."""
        if self._messenger.workers:
            with suppress(MessengerFull):
                self._messenger.send_to_workers(action, data).is_awaited = True

    # ---------------------------------------------------------------- ringing

    def _open_transport(self) -> Transport | None:
        """Of the agent's own rings; its node hears them without it."""
        if self._uses_notify:
            return NotifyTransport(
                self._database, self._secret, excluded_incarnation=self._incarnation, cluster_clock=self._time
            )
        if self._secret is None:
            return None
        return DatagramTransport(
            self._database, self._secret, excluded_incarnation=self._incarnation, cluster_clock=self._time
        )

    def ring(self, ring: Ring) -> None:
        """Ring at all nodes, this one included. On the agent's event loop; before the start nobody is there to hear."""
        if self._components is not None:
            self._debouncer.receive(ring)
            self._notifier.ring(ring)

    # ---------------------------------------------------------------- messages for all nodes

    def _broadcast_to_cluster(self, message: Message) -> None:
        """A process of this node has a message for all: its own hear it at once."""
        broadcast = Broadcast(str(message.data["action"]), message.data["data"])
        self._broadcast_on_node(broadcast)
        if self._secret is not None:
            self._notifier.ring(broadcast)
        else:
            self._events.emit(ClusterBroadcastFailed(action=broadcast.action, reason=NO_SECRET))

    def _broadcast_on_node(self, broadcast: Broadcast) -> None:
        if not broadcast.action.startswith(RESERVED_PREFIX):
            with suppress(MessengerFull):
                self._messenger.broadcast(broadcast.action, broadcast.data)


def _consume_exception(ping_task: asyncio.Future[None]) -> None:
    """A trial that ends after it was waited for: how, does not matter any more."""
    if not ping_task.cancelled():
        ping_task.exception()
