"""The part of the agent that hears the doorbell, knows whether it works, and sees to what falls due."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from peerd.agent.components import Components
from peerd.agent.doorbell.addressing import advertised_host, bound_host
from peerd.agent.doorbell.postgresql_listener import HINTS, HINTS_BESIDE_A_SECRET, Listening
from peerd.agent.doorbell.refusals import Refusals
from peerd.agent.doorbell.stager import DueTimer
from peerd.agent.doorbell.status import Condition
from peerd.agent.doorbell.udp_listener import OpenDoor
from peerd.agent.doorbell.wake_up_debouncer import Porter
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain.errors import DatabaseAway, MessengerFull
from peerd.domain.ring import Ring, Told, Trial, Work
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.doorbell.cluster_secret import secret_of
from peerd.doorbell.datagram import Opener
from peerd.doorbell.endpoints import Door, address_of, announce, door_of, nodes_without_door
from peerd.doorbell.notifier import Ringer
from peerd.doorbell.transports import Datagrams, NotificationOpener, Notifications, Way
from peerd.doorbell.wake_up_socket import Ears
from peerd.runtime.messages.message_handlers import Message
from peerd.runtime.messages.messenger import BROADCAST, RESERVED, Messenger
from peerd.runtime.observability.events import BellChanged, ClusterNotReached, Events
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import BELL, RING, ProcessContext
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.nodes.nodes import find_node
from peerd.store.outcomes.recording import database_now

NAMES: Final = ("bell", "due tasks")
"""Of the components."""
TRY_EVERY: Final = 30.0
"""Seconds between two trials of a bell that works."""
TRY_AGAIN_AFTER: Final = 5.0
"""The same, of one that does not."""
HEARD_WITHIN: Final = 1.0
"""Seconds that a trial may take."""
NO_SECRET: Final = "there is no secret: give every node the same one in [cluster] secret_file"  # noqa: S105


class BellPart:
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
        events: Events,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._process = process
        self._database = database
        self._incarnation = incarnation
        self._events = events
        self._is_notified = database.name == "postgresql"
        self._secret: str | None = None
        self._door: OpenDoor | None = None
        self._own_door: Door | None = None
        self._way: Way | None = None
        self._ears = Ears(node.run_directory)
        self._refusals = Refusals(events)
        self._time = ClusterClock()
        self._trying: asyncio.Future[None] | None = None
        self._trial: tuple[str, asyncio.Event] | None = None
        self._reason: str | None = "it has not been tried yet"
        self._works: bool | None = None
        self._components: Components | None = None

    async def start(self, link: Link, components: Components) -> None:
        """Begin to hear."""
        self._link = link
        self._untried = asyncio.Event()
        self._threads = DatabaseThreads(self._database, threads=2)
        self._messenger: Messenger = self._process().messenger
        self._messenger.on(BELL, lambda _: self.condition().to_json())
        self._messenger.on(BROADCAST, self._spread)
        self._messenger.on_change(self._tell_workers)
        self._messenger.on_change(self._ears.sweep)
        with suppress(OSError):
            self._ears.open()
        node = await self._threads.read(find_node, link.node)
        assert node is not None
        asked_at = self._time.steady()
        self._time.heard(await self._threads.read(database_now), asked_at)
        self._earlier = door_of(self._incarnation, node.address)
        self._ringer = Ringer(self._database, open_way=self._open_way)
        self._due = DueTimer(self._threads, node.id, self.ring, self._time)
        self._porter = Porter(self._wake_workers, self._due.hear, self._tell_all, self._heard_trial)
        self._components = components
        components.start(NAMES[0], self._run_notified if self._is_notified else self._run_door)
        components.start(NAMES[1], self._due.run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Deaths are the concern of others: what they release is rung when it is released."""

    async def stop(self, grace: float) -> None:
        """Hear no more."""
        if self._components is None:
            return
        await self._components.stop(NAMES, within=1.0)
        await asyncio.to_thread(self._ringer.close)
        self._ears.close()

    def condition(self) -> Condition:
        """How the bell is."""
        own, last = self._own_door, self._refusals.last
        return Condition(
            way="notify" if self._is_notified else "datagrams",
            reason=self._reason,
            address=None if own is None else address_of(own.host, own.port),
            heard=self._porter.heard,
            refused={str(why): count for why, count in self._refusals.counts.copy().items()},
            last_refused=None if last is None else "{}, from {}".format(*last),
        )

    # ---------------------------------------------------------------- hearing

    async def _run_notified(self) -> None:
        """Listen to PostgreSQL, and try from time to time whether one hears."""
        self._secret = self._cluster.secret
        listening = Listening(
            self._database,
            NotificationOpener(self._secret, self._time, me=self._incarnation),
            self._porter.hear,
            self._listening_changed,
            self._refusals,
            TokenBucket(*(HINTS if self._secret is None else HINTS_BESIDE_A_SECRET)),
        )
        self._way = Notifications(self._database, self._secret, time_of_cluster=self._time)
        async with asyncio.TaskGroup() as group:
            group.create_task(listening.run())
            group.create_task(self._try_again_and_again())

    async def _run_door(self) -> None:
        """Open the door, tell the others where it is, and try from time to time whether one hears."""
        self._secret = secret_of(self._database.url, self._cluster.secret, make=True)
        if self._secret is None:
            self._become(NO_SECRET)
            await asyncio.Event().wait()
            return
        self._door = OpenDoor(Opener(self._secret, self._incarnation, self._time), self._porter.hear, self._refusals)
        self._way = self._open_way()
        try:
            await self._open(self._door)
            await self._try_again_and_again()
        except OSError as error:
            self._become(f"UDP port {self._cluster.port}: {(error.strerror or str(error)).lower()}")
            raise
        finally:
            self._door.close()

    async def _open(self, door: OpenDoor) -> None:
        url = self._database.url
        host = advertised_host(self._node, url)
        bound = bound_host(self._cluster, host, url)
        self._own_door = Door(self._incarnation, host, self._bind(door, bound))
        await self._threads.run(announce, self._link.node, self._incarnation, address_of(host, self._own_door.port))

    def _bind(self, door: OpenDoor, host: str) -> int:
        """A later agent takes the port of an earlier one, where others still ring."""
        if self._earlier is not None and not self._cluster.port:
            with suppress(OSError):
                return door.open(host, self._earlier.port)
        return door.open(host, self._cluster.port)

    def _listening_changed(self, reason: str | None) -> None:
        if reason is not None:
            self._become(reason)
        else:
            self._untried.set()

    # ---------------------------------------------------------------- whether it works

    async def _try_again_and_again(self) -> None:
        while True:
            self._untried.clear()
            try:
                reason = await self._reason_why_not()
            except DatabaseAway as error:
                reason = str(error)
            self._become(reason)
            with suppress(TimeoutError):
                async with asyncio.timeout(TRY_EVERY if reason is None else TRY_AGAIN_AFTER):
                    await self._untried.wait()

    async def _reason_why_not(self) -> str | None:
        """Try it; why it is not known to work, None when it is."""
        if not await self._hears_itself():
            return self._not_heard()
        deaf = [] if self._is_notified else await self._threads.read(nodes_without_door)
        if deaf:
            return f"{', '.join(deaf)} cannot be rung at: give the same [cluster] secret there"
        return self._refusals.of_somebody_unheard()

    async def _hears_itself(self) -> bool:
        if self._trying is not None and not self._trying.done():
            return False  # the trial before is not sent yet; each would keep one more thread waiting
        word, heard = secrets.token_hex(8), asyncio.Event()
        self._trial = (word, heard)
        try:
            async with asyncio.timeout(HEARD_WITHIN):
                self._trying = asyncio.ensure_future(asyncio.to_thread(self._ring_at_own_door, [Trial(word)]))
                self._trying.add_done_callback(_look_at_its_end)
                await asyncio.shield(self._trying)
                await heard.wait()
        except TimeoutError:
            return False
        finally:
            self._trial = None
        return True

    def _ring_at_own_door(self, rings: Sequence[Ring]) -> None:
        if isinstance(self._way, Datagrams) and self._own_door is not None:
            self._way.send_to([self._own_door], rings)
        elif self._way is not None:
            self._way.send(rings)

    def _heard_trial(self, word: str) -> None:
        if self._trial is not None and self._trial[0] == word:
            self._trial[1].set()

    def _not_heard(self) -> str:
        if self._own_door is None:
            return "a notification of our own did not come back within a second"
        where = address_of(self._own_door.host, self._own_door.port)
        return f"a datagram to {where} did not arrive: is that this machine ([node] address), and UDP not blocked?"

    def _become(self, reason: str | None) -> None:
        """Say what has changed: in the log, and to the workers, who poll less while it works."""
        known, works = self._works, reason is None
        self._reason, self._works = reason, works
        if works is not known:
            self._events.emit(BellChanged(works=works, reason=reason))
            self._tell_workers()

    # ---------------------------------------------------------------- what the node's processes are told

    def _tell_workers(self) -> None:
        self._send(BELL, {"works": self._reason is None})

    def _wake_workers(self, ring: Ring) -> None:
        """At their ears; by a message who has none, and of what is not for ears."""
        workers = self._messenger.workers
        if isinstance(ring, Work):
            workers = tuple(worker for worker in workers if not self._ears.tell(worker.pid, ring))
        data = msgspec.to_builtins(ring)
        with suppress(MessengerFull):
            for worker in workers:
                self._messenger.send_to(worker.pid, RING, data).is_awaited = True

    def _send(self, action: str, data: object) -> None:
        """To the workers, if there are any; whoever misses it polls."""
        if self._messenger.workers:
            with suppress(MessengerFull):
                self._messenger.send_to_workers(action, data).is_awaited = True

    # ---------------------------------------------------------------- ringing

    def _open_way(self) -> Way | None:
        """Of the agent's own rings; its node hears them without it."""
        if self._is_notified:
            return Notifications(self._database, self._secret, but=self._incarnation, time_of_cluster=self._time)
        if self._secret is None:
            return None
        return Datagrams(self._database, self._secret, but=self._incarnation, time_of_cluster=self._time)

    def ring(self, ring: Ring) -> None:
        """Ring at all nodes, this one included. On the agent's event loop; before the start nobody is there to hear."""
        if self._components is not None:
            self._porter.hear(ring)
            self._ringer.ring(ring)

    # ---------------------------------------------------------------- messages for all nodes

    def _spread(self, message: Message) -> None:
        """A process of this node has a message for all: its own hear it at once."""
        told = Told(str(message.data["action"]), message.data["data"])
        self._tell_all(told)
        if self._secret is not None:
            self._ringer.ring(told)
        else:
            self._events.emit(ClusterNotReached(action=told.action, reason=NO_SECRET))

    def _tell_all(self, told: Told) -> None:
        if not told.action.startswith(RESERVED):
            with suppress(MessengerFull):
                self._messenger.broadcast(told.action, told.data)


def _look_at_its_end(trying: asyncio.Future[None]) -> None:
    """A trial that ends after it was waited for: how, does not matter any more."""
    if not trying.cancelled():
        trying.exception()
