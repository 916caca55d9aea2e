"""Where an agent receives rings: a UDP socket, or PostgreSQL's LISTEN.

The cost of a flood is bounded. A datagram that is not a ring is dropped by its length and first bytes, a forged one by
its MAC; after a number of them the event loop runs other callbacks, and the kernel drops the rest. Any role that may
connect to a database of PostgreSQL can notify; so an unsigned notification is a hint, and of the hints beyond a number
per second one ring for any queue is made.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import URL

from peerd.agent.doorbell_health import RejectedRings
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain.errors import UnsupportedDatabase
from peerd.domain.pacing import Backoff, TokenBucket
from peerd.domain.ring import Ring, TasksAvailable
from peerd.doorbell.datagram import (
    CHANNEL,
    MAX_DATAGRAM_BYTES,
    NotificationVerifier,
    RejectionReason,
    RingRejected,
    Verifier,
)
from peerd.runtime.concurrency import call_on_loop
from peerd.runtime.sockets import closed_on_error
from peerd.store.connection.database import Database, translated_errors
from peerd.store.connection.postgresql import has_pooler, shares_session

DATAGRAMS_PER_TURN: Final = 64
"""Datagrams read before the event loop runs other callbacks."""
PAUSE_BETWEEN_TURNS: Final = 0.005
"""Seconds until the next ones are read."""
LOOPBACK: Final = "127.0.0.1"
DISCARD_PORT: Final = 9
"""Nothing is sent to it: it only selects a route."""
CHECK_STOP_EVERY: Final = 0.5
"""Seconds after which the thread notices that it must end."""
END_WITHIN: Final = 2.0
SHARED_SESSION: Final = "the pooler gives the session to others between transactions (pool_mode)"
UNSIGNED_RATE: Final = (400, 200.0)
"""Unsigned notifications heeded at once, and in a second, in a cluster without a secret, where all are unsigned."""
UNSIGNED_RATE_WITH_SECRET: Final = (5, 1.0)
"""Unsigned notifications heeded at once, and in a second, where there is a secret: they are written by hand in SQL, or
by an application without the secret."""


@dataclass(eq=False)
class UdpListener:
    """Receives datagrams, from `open` to `close`.

    Args:
        on_ring: called with each ring.
        rejected: counts the other datagrams.
    """

    verifier: Verifier
    on_ring: Callable[[Ring], None]
    rejected: RejectedRings

    def __post_init__(self) -> None:
        self._socket: socket.socket | None = None
        self._resume_timer: asyncio.TimerHandle | None = None

    def open(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._loop = asyncio.get_running_loop()
        udp_socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        with closed_on_error(udp_socket):
            udp_socket.setblocking(False)
            udp_socket.bind((host, port))
        self._socket = udp_socket
        self._resume(udp_socket)
        return int(udp_socket.getsockname()[1])

    def close(self) -> None:
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _resume(self, udp_socket: socket.socket) -> None:
        self._loop.add_reader(udp_socket, self._read, udp_socket)

    def _read(self, udp_socket: socket.socket) -> None:
        with suppress(OSError):  # no datagram is left, or an earlier one of ours was answered by "port unreachable"
            for _ in range(DATAGRAMS_PER_TURN):
                datagram, sender = udp_socket.recvfrom(MAX_DATAGRAM_BYTES + 1)
                try:
                    ring = self.verifier.open(datagram)
                except RingRejected as error:
                    self.rejected.add(error, str(sender[0]))
                else:
                    self.on_ring(ring)
            self._loop.remove_reader(udp_socket)
            self._resume_timer = self._loop.call_later(PAUSE_BETWEEN_TURNS, self._resume, udp_socket)


def advertised_host(node: NodeSettings, url: URL) -> str:
    """Where other nodes reach this machine: [node] address; else its local address on the way to the database."""
    if url.get_backend_name() == "sqlite":
        return LOOPBACK  # all of the cluster is on this machine
    if node.address:
        return node.address.removeprefix("[").removesuffix("]")
    with suppress(OSError):
        family, _, _, _, address = socket.getaddrinfo(url.host or LOOPBACK, DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    return socket.gethostname()


def bound_host(cluster: ClusterSettings, advertised: str, url: URL) -> str:
    """The address to bind: [cluster] bind; else every address, and on SQLite the loopback alone."""
    if cluster.bind is not None:
        return cluster.bind
    if url.get_backend_name() == "sqlite":
        return LOOPBACK
    return "::" if ":" in advertised else "0.0.0.0"  # noqa: S104 - what comes in is authenticated


@dataclass(eq=False)
class PostgresqlListener:
    """Receives notifications from `run` to its cancellation, in a thread with a connection of its own.

    Args:
        on_ring: called on the event loop with each ring.
        on_change: called on the event loop: with a problem when the connection is lost, with None when it is open.
        rejected: counts the other notifications.
    """

    database: Database
    verifier: NotificationVerifier
    on_ring: Callable[[Ring], None]
    on_change: Callable[[str | None], None]
    rejected: RejectedRings

    def __post_init__(self) -> None:
        self._unsigned = TokenBucket(*(UNSIGNED_RATE_WITH_SECRET if self.verifier.has_secret else UNSIGNED_RATE))
        self._has_dropped_hints = False

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        stopping = threading.Event()
        thread = threading.Thread(target=self._run_thread, args=(stopping,), name="peerd-listening", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await asyncio.to_thread(thread.join, END_WITHIN)

    def _run_thread(self, stopping: threading.Event) -> None:
        pauses = Backoff()
        while not stopping.is_set():
            try:
                with closing(self._connect()) as connection:
                    call_on_loop(self._loop, self.on_change, None)
                    call_on_loop(self._loop, self.on_ring, TasksAvailable())  # rings may have been missed meanwhile
                    pauses.reset()
                    self._listen(connection, stopping)
            except Exception as error:  # noqa: BLE001 - the connection is opened again after any error
                problem = f"PostgreSQL's LISTEN: {str(error).strip() or type(error).__name__}"
                call_on_loop(self._loop, self.on_change, problem)
                stopping.wait(pauses.next())

    def _connect(self) -> Any:
        with translated_errors():
            pooled = self.database.engine.raw_connection()
        connection: Any = pooled.dbapi_connection
        pooled.detach()  # it does not go back to the pool
        if has_pooler(pooled.info) and self._shares_session(connection):
            connection.close()
            raise UnsupportedDatabase(SHARED_SESSION)
        connection.rollback()
        connection.autocommit = True
        connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _shares_session(self, connection: Any) -> bool:
        with translated_errors(), closing(self.database.engine.raw_connection()) as pooled:
            other: Any = pooled.dbapi_connection
            return shares_session(connection, other)

    def _listen(self, connection: Any, stopping: threading.Event) -> None:
        while not stopping.is_set():
            for notification in connection.notifies(timeout=CHECK_STOP_EVERY):
                self._receive(notification.payload, notification.pid)
                if stopping.is_set():
                    return
            if self._has_dropped_hints:
                self._has_dropped_hints = False
                call_on_loop(self._loop, self.on_ring, TasksAvailable())

    def _receive(self, payload: str, pid: int) -> None:
        if not self.verifier.is_signed(payload) and not self._unsigned.try_take(time.monotonic()):
            self._has_dropped_hints = True
            return
        try:
            call_on_loop(self._loop, self.on_ring, self.verifier.open(payload))
        except RingRejected as error:
            if error.rejection_reason is not RejectionReason.OURS:
                self.rejected.add(error, f"PostgreSQL's process {pid}")
