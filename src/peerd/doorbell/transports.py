"""The two ways of a ring: datagrams to the doors of all nodes, and PostgreSQL's NOTIFY.

Both sign what they send with the cluster's secret, and with the database's time. PostgreSQL needs no secret to ring:
what is not signed is taken there as a hint, of which a few a second are heeded, and never as a message.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.ring import Broadcast, Ring, TasksAvailable
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.doorbell.datagram import (
    ALL_NODES,
    ALL_NODES_BUT,
    SIGNED_PREFIX,
    RejectionReason,
    RingRejected,
    Signer,
    Verifier,
    decode_text,
    encode_text,
)
from peerd.doorbell.endpoints import Endpoint, read_endpoints
from peerd.store.connection.database import Database
from peerd.store.outcomes.recording import database_now

ENDPOINTS_TTL: Final = 5.0
"""Seconds that the doors of the nodes are known for."""
NO_ENDPOINTS_TTL: Final = 0.1
"""The same, while there is none: whoever comes first is to be rung at soon."""
CHANNEL: Final = "peerd"
"""Of PostgreSQL's NOTIFY."""


class Transport(Protocol):
    """How rings reach the nodes."""

    def send(self, rings: Sequence[Ring]) -> None:
        """Send them to all nodes; it may wait for the database, and raise what that raises."""
        ...

    def close(self) -> None:
        """Send no more."""
        ...


class EndpointsUnknown(PeerdError):
    """The nodes that are to be rung at were asked for a moment ago, in vain."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the addresses of the nodes could not be read: {reason}")


class DatagramTransport:
    """Rings by UDP.

    Args:
        database: says where the nodes hear.
        secret: of the cluster.
        excluded_incarnation: the life of a node that is not rung at: the one that rings, which knows already.
        clock: monotonic, in seconds.
        cluster_clock: what it signs with; it learns it when it asks for the nodes.
    """

    def __init__(
        self,
        database: Database,
        secret: str,
        *,
        excluded_incarnation: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        cluster_clock: ClusterClock | None = None,
    ) -> None:
        self._database = database
        self._excluded_incarnation = excluded_incarnation
        self._clock = clock
        self._cluster_clock = cluster_clock or ClusterClock()
        self._signer = Signer(secret, self._cluster_clock)
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._endpoints: frozenset[Endpoint] = frozenset()
        self._endpoints_expire_at: float | None = None
        self._last_error: str | None = None
        """Why the nodes could not be asked for when they were last; None: they could."""

    def send(self, rings: Sequence[Ring]) -> None:
        """Ring at the doors that are known; when that was long ago, ask, and ring at the new ones too."""
        notified = self._endpoints
        self.send_to(notified, rings)
        if self._endpoints_expire_at is None or self._clock() >= self._endpoints_expire_at:
            self._endpoints_expire_at = (
                self._clock() + NO_ENDPOINTS_TTL
            )  # a database that is away is not asked at each ring
            try:
                self._endpoints = self._refresh()
            except Exception as error:
                self._last_error = f"{type(error).__name__}: {error}"
                raise
            self._last_error = None
            self._endpoints_expire_at = self._clock() + (ENDPOINTS_TTL if self._endpoints else NO_ENDPOINTS_TTL)
            self.send_to(self._endpoints - notified, rings)
        elif self._last_error is not None:
            raise EndpointsUnknown(self._last_error)

    def _refresh(self) -> frozenset[Endpoint]:
        """The doors of all other nodes, and what time it is."""
        asked_at = self._cluster_clock.steady()
        found = self._database.read(read_endpoints)
        if found.now is not None:
            self._cluster_clock.synchronize(found.now, asked_at)
        return frozenset(endpoint for endpoint in found.all if endpoint.incarnation != self._excluded_incarnation)

    def send_to(self, endpoints: Iterable[Endpoint], rings: Sequence[Ring]) -> None:
        """Ring at these doors. Nobody waits: what the network does not take at once is lost."""
        for endpoint in endpoints:
            for ring in rings:
                with suppress(OSError):
                    family, address = _resolved(endpoint.host, endpoint.port)
                    self._socket(family).sendto(self._signer.sign(ring, endpoint.incarnation), address)

    def close(self) -> None:
        """Close its sockets."""
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()

    def _socket(self, family: socket.AddressFamily) -> socket.socket:
        if family not in self._sockets:
            self._sockets[family] = socket.socket(family, socket.SOCK_DGRAM)
            self._sockets[family].setblocking(False)
        return self._sockets[family]


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """An address that is one already costs no look-up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family, (host, port)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return found[0], (str(found[4][0]), port)


class NotifyTransport:
    """Rings by PostgreSQL's NOTIFY.

    They go in a transaction of their own, after that of the work: NOTIFY takes a lock of the whole database at its
    commit, and would make all who enqueue wait for one another's fsync (graphile/worker #552).

    Args:
        database: which notifies.
        secret: of the cluster; without one nothing is signed, and no message is taken.
        excluded_incarnation: the life of a node that is not to take it: the one that rings, which knows already.
        cluster_clock: what it signs with; it learns it from each answer.
    """

    def __init__(
        self,
        database: Database,
        secret: str | None = None,
        *,
        excluded_incarnation: str | None = None,
        cluster_clock: ClusterClock | None = None,
    ) -> None:
        self._database = database
        self._cluster_clock = cluster_clock or ClusterClock()
        self._signer = None if secret is None else Signer(secret, self._cluster_clock)
        self._to = ALL_NODES if excluded_incarnation is None else ALL_NODES_BUT + excluded_incarnation

    def send(self, rings: Sequence[Ring]) -> None:
        """Notify, in one statement. What may be heard twice is sent again where a connection turns out to be closed."""
        if self._signer is not None and not self._cluster_clock.is_known:
            asked_at = self._cluster_clock.steady()
            self._cluster_clock.synchronize(self._database.read(database_now), asked_at)
        once = any(isinstance(ring, Broadcast) for ring in rings)
        send = self._database.run_autocommit if once else self._database.run_idempotent
        asked_at = self._cluster_clock.steady()
        self._cluster_clock.synchronize(send(send_notifications, [self._payload(ring) for ring in rings]), asked_at)

    def _payload(self, ring: Ring) -> str:
        if self._signer is None:
            return msgspec.json.encode(ring).decode()
        return encode_text(self._signer.sign(ring, self._to))

    def close(self) -> None:
        """There is nothing to close: the database is somebody else's."""


NOTIFY: Final = sa.text(
    "SELECT set_config('synchronous_commit', 'off', true), "
    "(SELECT count(pg_notify(:channel, payload)) FROM unnest(CAST(:payloads AS text[])) AS payload), clock_timestamp()"
)
"""A ring that a crash of the server loses was lost anyway: no fsync."""


def send_notifications(connection: Connection, payloads: Sequence[str]) -> datetime:
    """Send notifications with the statement's commit; return what time it is there."""
    moment = connection.execute(NOTIFY, {"channel": CHANNEL, "payloads": list(payloads)}).one()[2]
    assert isinstance(moment, datetime)
    return moment


class NotificationVerifier:
    """Tells what a notification means.

    Args:
        secret: of the cluster; None: whether something was signed cannot be told, so nothing is a message.
        clock: UNIX time, in seconds.
        me: this life of the node, whose own notifications are refused: it knows already.

    >>> opener = NotificationVerifier(None, lambda: 0.0, me="life")
    >>> opener.open("video, mail"), opener.open(""), opener.open('{"type":"due","within":1.0}')
    (TasksAvailable(queues=('video', 'mail')), TasksAvailable(queues=()), TaskScheduled(within=1.0, at=None))
    >>> opener.open('{"type":"told","action":"prices"}')
    Traceback (most recent call last):
    peerd.doorbell.datagram.RingRejected: it is a message that is not signed: give all nodes and applications the same \
[cluster] secret
    """

    def __init__(self, secret: str | None, clock: Callable[[], float], *, me: str) -> None:
        self._verifier = None if secret is None else Verifier(secret, me, clock, accepts_broadcasts=True)

    def is_signed(self, payload: str) -> bool:
        """Whether it says that it is signed, and there is a secret to tell by."""
        return self._verifier is not None and payload.startswith(SIGNED_PREFIX)

    def open(self, payload: str) -> Ring:
        """The ring of a notification: one that is signed; or a hint, in JSON or as names of queues with commas.

        Raises:
            RingRejected: it is not to be listened to, with the reason.
        """
        if not payload.startswith(SIGNED_PREFIX):
            return _hint(payload)
        if self._verifier is None:
            return TasksAvailable()  # from somebody with a secret, which is a hint at the least
        return self._verifier.open(decode_text(payload))


def _hint(payload: str) -> Ring:
    """What anybody may say who is let into the database."""
    try:
        if payload.startswith("{"):
            ring: Ring = msgspec.json.decode(payload, type=Ring)
        else:
            ring = TasksAvailable(_names(payload))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RingRejected(RejectionReason.STRANGE) from None
    if isinstance(ring, Broadcast):
        raise RingRejected(RejectionReason.UNSIGNED)
    return ring


def _names(payload: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in payload.split(",") if name.strip())
