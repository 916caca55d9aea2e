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
from peerd.domain.ring import Ring, Told, Work
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.doorbell.datagram import ALL, ALL_BUT, SIGNED, Opener, Refused, RingRefused, Sealer, as_text, from_text
from peerd.doorbell.endpoints import Door, doors
from peerd.store.connection.database import Database
from peerd.store.outcomes.recording import database_now

KNOWN_FOR: Final = 5.0
"""Seconds that the doors of the nodes are known for."""
NOBODY_FOR: Final = 0.1
"""The same, while there is none: whoever comes first is to be rung at soon."""
CHANNEL: Final = "peerd"
"""Of PostgreSQL's NOTIFY."""


class Way(Protocol):
    """How rings reach the nodes."""

    def send(self, rings: Sequence[Ring]) -> None:
        """Send them to all nodes; it may wait for the database, and raise what that raises."""
        ...

    def close(self) -> None:
        """Send no more."""
        ...


class NodesUnknown(PeerdError):
    """The nodes that are to be rung at were asked for a moment ago, in vain."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the addresses of the nodes could not be read: {reason}")


class Datagrams:
    """Rings by UDP.

    Args:
        database: says where the nodes hear.
        secret: of the cluster.
        but: the life of a node that is not rung at: the one that rings, which knows already.
        clock: monotonic, in seconds.
        time_of_cluster: what it signs with; it learns it when it asks for the nodes.
    """

    def __init__(
        self,
        database: Database,
        secret: str,
        *,
        but: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_of_cluster: ClusterClock | None = None,
    ) -> None:
        self._database = database
        self._but = but
        self._clock = clock
        self._time = time_of_cluster or ClusterClock()
        self._sealer = Sealer(secret, self._time)
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._doors: frozenset[Door] = frozenset()
        self._known_until: float | None = None
        self._unknown: str | None = None
        """Why the nodes could not be asked for when they were last; None: they could."""

    def send(self, rings: Sequence[Ring]) -> None:
        """Ring at the doors that are known; when that was long ago, ask, and ring at the new ones too."""
        rung = self._doors
        self.send_to(rung, rings)
        if self._known_until is None or self._clock() >= self._known_until:
            self._known_until = self._clock() + NOBODY_FOR  # a database that is away is not asked at each ring
            try:
                self._doors = self._ask()
            except Exception as error:
                self._unknown = f"{type(error).__name__}: {error}"
                raise
            self._unknown = None
            self._known_until = self._clock() + (KNOWN_FOR if self._doors else NOBODY_FOR)
            self.send_to(self._doors - rung, rings)
        elif self._unknown is not None:
            raise NodesUnknown(self._unknown)

    def _ask(self) -> frozenset[Door]:
        """The doors of all other nodes, and what time it is."""
        asked_at = self._time.steady()
        found = self._database.read(doors)
        if found.now is not None:
            self._time.heard(found.now, asked_at)
        return frozenset(door for door in found.all if door.incarnation != self._but)

    def send_to(self, some: Iterable[Door], rings: Sequence[Ring]) -> None:
        """Ring at these doors. Nobody waits: what the network does not take at once is lost."""
        for door in some:
            for ring in rings:
                with suppress(OSError):
                    family, address = _resolved(door.host, door.port)
                    self._socket(family).sendto(self._sealer.seal(ring, door.incarnation), address)

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


class Notifications:
    """Rings by PostgreSQL's NOTIFY.

    They go in a transaction of their own, after that of the work: NOTIFY takes a lock of the whole database at its
    commit, and would make all who enqueue wait for one another's fsync (graphile/worker #552).

    Args:
        database: which notifies.
        secret: of the cluster; without one nothing is signed, and no message is taken.
        but: the life of a node that is not to take it: the one that rings, which knows already.
        time_of_cluster: what it signs with; it learns it from each answer.
    """

    def __init__(
        self,
        database: Database,
        secret: str | None = None,
        *,
        but: str | None = None,
        time_of_cluster: ClusterClock | None = None,
    ) -> None:
        self._database = database
        self._time = time_of_cluster or ClusterClock()
        self._sealer = None if secret is None else Sealer(secret, self._time)
        self._to = ALL if but is None else ALL_BUT + but

    def send(self, rings: Sequence[Ring]) -> None:
        """Notify, in one statement. What may be heard twice is sent again where a connection turns out to be closed."""
        if self._sealer is not None and not self._time.is_known:
            asked_at = self._time.steady()
            self._time.heard(self._database.read(database_now), asked_at)
        once = any(isinstance(ring, Told) for ring in rings)
        send = self._database.run_each if once else self._database.run_repeatable
        asked_at = self._time.steady()
        self._time.heard(send(notify, [self._payload(ring) for ring in rings]), asked_at)

    def _payload(self, ring: Ring) -> str:
        if self._sealer is None:
            return msgspec.json.encode(ring).decode()
        return as_text(self._sealer.seal(ring, self._to))

    def close(self) -> None:
        """There is nothing to close: the database is somebody else's."""


NOTIFY: Final = sa.text(
    "SELECT set_config('synchronous_commit', 'off', true), "
    "(SELECT count(pg_notify(:channel, payload)) FROM unnest(CAST(:payloads AS text[])) AS payload), clock_timestamp()"
)
"""A ring that a crash of the server loses was lost anyway: no fsync."""


def notify(connection: Connection, payloads: Sequence[str]) -> datetime:
    """Send notifications with the statement's commit; return what time it is there."""
    moment = connection.execute(NOTIFY, {"channel": CHANNEL, "payloads": list(payloads)}).one()[2]
    assert isinstance(moment, datetime)
    return moment


class NotificationOpener:
    """Tells what a notification means.

    Args:
        secret: of the cluster; None: whether something was signed cannot be told, so nothing is a message.
        clock: UNIX time, in seconds.
        me: this life of the node, whose own notifications are refused: it knows already.

    >>> opener = NotificationOpener(None, lambda: 0.0, me="life")
    >>> opener.open("video, mail"), opener.open(""), opener.open('{"type":"due","within":1.0}')
    (Work(queues=('video', 'mail')), Work(queues=()), Due(within=1.0, at=None))
    >>> opener.open('{"type":"told","action":"prices"}')
    Traceback (most recent call last):
    peerd.doorbell.datagram.RingRefused: it is a message that is not signed: give all nodes and applications the same \
[cluster] secret
    """

    def __init__(self, secret: str | None, clock: Callable[[], float], *, me: str) -> None:
        self._opener = None if secret is None else Opener(secret, me, clock, opens_those_for_all=True)

    def is_signed(self, payload: str) -> bool:
        """Whether it says that it is signed, and there is a secret to tell by."""
        return self._opener is not None and payload.startswith(SIGNED)

    def open(self, payload: str) -> Ring:
        """The ring of a notification: one that is signed; or a hint, in JSON or as names of queues with commas.

        Raises:
            RingRefused: it is not to be listened to, with the reason.
        """
        if not payload.startswith(SIGNED):
            return _hint(payload)
        if self._opener is None:
            return Work()  # from somebody with a secret, which is a hint at the least
        return self._opener.open(from_text(payload))


def _hint(payload: str) -> Ring:
    """What anybody may say who is let into the database."""
    try:
        if payload.startswith("{"):
            ring: Ring = msgspec.json.decode(payload, type=Ring)
        else:
            ring = Work(_names(payload))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RingRefused(Refused.STRANGE) from None
    if isinstance(ring, Told):
        raise RingRefused(Refused.UNSIGNED)
    return ring


def _names(payload: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in payload.split(",") if name.strip())
