"""Sending rings: `Notifier.ring` returns at once, and a thread sends what was rung to the agents of all nodes.

Ringing never fails its caller: a ring that is lost costs the time to the next poll. Rings within a few milliseconds are
sent together: the first one after a pause at once, then one every 2 ms, doubled up to 20 ms while more keep coming.

On MariaDB, MySQL and SQLite a ring is a UDP datagram to each active node (`DatagramTransport`), on PostgreSQL a NOTIFY
(`NotifyTransport`). Both are signed with the cluster's secret and the database's time; PostgreSQL also takes unsigned
rings, as hints: a few of them a second are heeded.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.pacing import Backoff
from peerd.domain.ring import Coalescer, Ring
from peerd.doorbell.cluster_secret import read_secret
from peerd.doorbell.datagram import ALL_NODES, ALL_NODES_BUT, CHANNEL, ClusterClock, Signer, encode_text
from peerd.store.connection.database import Database
from peerd.store.outcomes import database_now
from peerd.store.schema.tables import nodes
from peerd.store.schema.types import MYSQL, now

MIN_INTERVAL: Final = 0.002
MAX_INTERVAL: Final = 0.02
"""Shortest and longest time between two sendings of a process, in seconds."""
CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the last rings of a process may take."""
ENDPOINTS_TTL: Final = 5.0
"""Seconds for which the nodes' addresses are cached."""
NO_ENDPOINTS_TTL: Final = 0.1
"""Seconds for which it is cached that there is no node: the first one is rung soon after its start."""
NOTIFY: Final = sa.text(
    "SELECT set_config('synchronous_commit', 'off', true), "
    "(SELECT count(pg_notify(:channel, payload)) FROM unnest(CAST(:payloads AS text[])) AS payload), clock_timestamp()"
)
"""Without fsync: a ring that a crash of the server loses was lost anyway."""


class Transport(Protocol):
    """How rings reach the nodes."""

    def send(self, rings: Sequence[Ring]) -> None:
        """Send to all nodes; may wait for the database, and raise what it raises."""

    def close(self) -> None:
        """Stop sending."""


class Notifier:
    """Rings at all nodes of a cluster. Safe to use from several threads, and after a fork.

    Args:
        database: the cluster's.
        secret: [cluster] secret; not needed on SQLite, and on PostgreSQL for messages to all nodes only.
        open_transport: makes the transport when the first ring is sent; None where there is none.
    """

    def __init__(
        self,
        database: Database,
        secret: str | None = None,
        open_transport: Callable[[], Transport | None] | None = None,
    ) -> None:
        self.secret = secret
        """The secret of the cluster, as it was given."""
        self._open_transport = open_transport or (lambda: _open_transport(database, secret))
        self.has_no_secret = open_transport is None and database.name in MYSQL and not secret
        """Whether it cannot ring, for want of a secret."""
        self.last_error: str | None = None
        """Why the latest rings could not be sent; None when they were."""
        self.rings_sent = 0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._coalescer = Coalescer()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._transport: Transport | None = None
        self._busy = False
        self._closed = False

    def ring(self, *rings: Ring) -> None:
        """Have the thread send these rings."""
        if self.has_no_secret:
            return
        if self._pid != os.getpid():
            self._reset()  # the thread has stayed in the process that this one was forked from
        with self._changed:
            if self._closed or not rings:
                return
            for ring in rings:
                self._coalescer.add(ring)
            if self._busy:
                return  # the thread sends these rings with its next ones
            self._busy = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_loop, name="peerd-notifier", daemon=True)
                self._thread.start()
                atexit.register(_close, weakref.ref(self))
            self._changed.notify_all()

    def flush(self, within: float = CLOSE_TIMEOUT) -> bool:
        """Wait up to so many seconds until all rings are sent; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy or self._pid != os.getpid(), within)

    def close(self) -> None:
        """Send the remaining rings, and end the thread."""
        if self._pid != os.getpid() or self._thread is None:
            self._closed = True
            return
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_TIMEOUT)

    def _run_loop(self) -> None:
        intervals = Backoff(MIN_INTERVAL, MAX_INTERVAL, jitter=0.0)
        while (rings := self._next()) is not None:
            try:
                self._transport = self._transport or self._open_transport()
                if self._transport is not None:
                    self._transport.send(rings)
                    self.rings_sent += len(rings)
                self.last_error = None
            except Exception as error:  # noqa: BLE001 - the poll finds the tasks
                self.last_error = f"{type(error).__name__}: {error}"
            with self._changed:
                self._changed.wait_for(lambda: self._closed, intervals.next())  # rings of this time are sent together
                if not self._coalescer:
                    intervals.reset()
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> list[Ring] | None:
        """Wait for rings; None at the end."""
        with self._changed:
            while not (rings := self._coalescer.take()):
                self._busy = False
                self._changed.notify_all()
                if self._closed:
                    return None
                self._changed.wait()
            return rings


def _open_transport(database: Database, secret: str | None) -> Transport | None:
    if database.name == "postgresql":
        return NotifyTransport(database, secret)
    found = read_secret(database.url, secret)
    return None if found is None else DatagramTransport(database, found)


def _close(reference: weakref.ref[Notifier]) -> None:
    notifier = reference()
    if notifier is not None:
        notifier.close()


@dataclass(eq=False)
class DatagramTransport:
    """Rings by UDP.

    Args:
        excluded_incarnation: of a node that is not rung at: the sender's own.
        clock: monotonic, in seconds.
        cluster_clock: for the signatures; synchronized whenever the addresses are read.
    """

    database: Database
    secret: str
    excluded_incarnation: str | None = None
    clock: Callable[[], float] = time.monotonic
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)

    def __post_init__(self) -> None:
        self._signer = Signer(self.secret, self.cluster_clock)
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._endpoints: frozenset[Endpoint] = frozenset()
        self._endpoints_expire_at: float | None = None
        # why the addresses could not be read a moment ago; they are not read again yet
        self._last_error: Exception | None = None

    def send(self, rings: Sequence[Ring]) -> None:
        """Ring at the known nodes; when their addresses have expired, read them and ring at the new nodes too."""
        notified = self._endpoints
        self.send_to(notified, rings)
        if self._endpoints_expire_at is None or self.clock() >= self._endpoints_expire_at:
            # set first, so that a database that is away is not asked at each ring
            self._endpoints_expire_at = self.clock() + NO_ENDPOINTS_TTL
            try:
                self._endpoints = self._read_endpoints()
            except Exception as error:
                self._last_error = error
                raise
            self._last_error = None
            self._endpoints_expire_at = self.clock() + (ENDPOINTS_TTL if self._endpoints else NO_ENDPOINTS_TTL)
            self.send_to(self._endpoints - notified, rings)
        elif self._last_error is not None:
            raise self._last_error

    def _read_endpoints(self) -> frozenset[Endpoint]:
        asked_at = self.cluster_clock.steady()
        endpoints, now = self.database.read(read_endpoints)
        if now is not None:
            self.cluster_clock.synchronize(now, asked_at)
        return frozenset(one for one in endpoints if one.incarnation != self.excluded_incarnation)

    def send_to(self, endpoints: Iterable[Endpoint], rings: Sequence[Ring]) -> None:
        """Ring at these endpoints. What the network does not take at once is lost."""
        for endpoint in endpoints:
            for ring in rings:
                with suppress(OSError):
                    family, address = _resolve(endpoint.host, endpoint.port)
                    self._socket(family).sendto(self._signer.sign(ring, endpoint.incarnation), address)

    def close(self) -> None:
        for udp_socket in self._sockets.values():
            udp_socket.close()
        self._sockets.clear()

    def _socket(self, family: socket.AddressFamily) -> socket.socket:
        if family not in self._sockets:
            self._sockets[family] = socket.socket(family, socket.SOCK_DGRAM)
            self._sockets[family].setblocking(False)
        return self._sockets[family]


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Look a host's name up; a numeric address needs no look-up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family, (host, port)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return found[0], (str(found[4][0]), port)


@dataclass(eq=False)
class NotifyTransport:
    """Rings by PostgreSQL's NOTIFY, in a transaction of its own after the work's.

    NOTIFY takes a lock of the whole database at its commit: in the work's transactions it would make each enqueue wait
    for the fsync of the others (graphile/worker #552).

    Args:
        secret: without one nothing is signed, and broadcasts are rejected.
        excluded_incarnation: of a node that ignores the rings: the sender's own.
        cluster_clock: for the signatures; synchronized by each answer.
    """

    database: Database
    secret: str | None = None
    excluded_incarnation: str | None = None
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)

    def __post_init__(self) -> None:
        self._signer = None if self.secret is None else Signer(self.secret, self.cluster_clock)
        self._to = ALL_NODES if self.excluded_incarnation is None else ALL_NODES_BUT + self.excluded_incarnation

    def send(self, rings: Sequence[Ring]) -> None:
        """Notify, in one statement. It is not repeated after a lost connection: a ring may be a broadcast."""
        if self._signer is not None and not self.cluster_clock.is_known:
            asked_at = self.cluster_clock.steady()
            self.cluster_clock.synchronize(self.database.read(database_now), asked_at)
        asked_at = self.cluster_clock.steady()
        now = self.database.run_short(_notify, [self._payload(ring) for ring in rings])
        self.cluster_clock.synchronize(now, asked_at)

    def _payload(self, ring: Ring) -> str:
        if self._signer is None:
            return msgspec.json.encode(ring).decode()
        return encode_text(self._signer.sign(ring, self._to))

    def close(self) -> None:
        """Nothing: the database belongs to the caller."""


def _notify(connection: Connection, payloads: Sequence[str]) -> datetime:
    """Send notifications with the statement's commit; return the server's time."""
    now: datetime = connection.execute(NOTIFY, {"channel": CHANNEL, "payloads": list(payloads)}).one()[2]
    return now


# ---------------------------------------------------------------- the addresses of agents


class Endpoint(NamedTuple):
    """Where one incarnation of a node receives datagrams."""

    incarnation: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """The address as the table has it; `parse_endpoint` is the reverse.

        >>> Endpoint("life", "10.0.0.7", 7070).address, Endpoint("life", "::1", 7070).address
        ('10.0.0.7:7070', '[::1]:7070')
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_endpoints(connection: Connection) -> tuple[list[Endpoint], datetime | None]:
    """The endpoints of all active nodes, and the database's time; None where there is no node."""
    rows = _active_nodes(connection)
    known = [endpoint for row in rows if (endpoint := parse_endpoint(row.incarnation, row.address))]
    return known, rows[0].now if rows else None


def nodes_without_endpoint(connection: Connection) -> list[str]:
    """Names of the active nodes whose address has no port."""
    rows = _active_nodes(connection)
    return [row.name for row in rows if parse_endpoint(row.incarnation, row.address) is None]


def _active_nodes(connection: Connection) -> Sequence[sa.Row[Any]]:
    columns = (nodes.c.name, nodes.c.incarnation, nodes.c.address, now().label("now"))
    return connection.execute(sa.select(*columns).where(nodes.c.active)).all()


def parse_endpoint(incarnation: str | None, address: str | None) -> Endpoint | None:
    """The endpoint of a node's row; None where its address has no port.

    >>> parse_endpoint("life", "[::1]:7070")
    Endpoint(incarnation='life', host='::1', port=7070)
    >>> parse_endpoint("life", "10.0.0.7") is None
    True
    """
    host, _, port = (address or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not incarnation or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        return None
    return Endpoint(incarnation, host, int(port))


def write_endpoint(connection: Connection, name: str, incarnation: str, address: str | None) -> None:
    """Write the address of this incarnation of a node."""
    own_row = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(own_row.values(address=address))
