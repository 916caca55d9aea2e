"""The two ways of a ring: datagrams to the doors of all nodes, and PostgreSQL's NOTIFY."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.bell.datagram import Sealer
from peerd.bell.doors import Door, doors
from peerd.domain.ring import Ring, Told, Work
from peerd.domain.task import QUEUE_NAME
from peerd.store.database import Database

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


class Datagrams:
    """Rings by UDP.

    Args:
        database: says where the nodes hear.
        secret: of the cluster.
        but: the life of a node that is not rung at: the one that rings, which knows already.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        database: Database,
        secret: str,
        *,
        but: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._but = but
        self._clock = clock
        self._sealer = Sealer(secret, time.time)
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._doors: frozenset[Door] = frozenset()
        self._known_until: float | None = None

    def send(self, rings: Sequence[Ring]) -> None:
        """Ring at the doors that are known; when that was long ago, ask, and ring at the new ones too."""
        rung = self._doors
        self.send_to(rung, rings)
        if self._known_until is None or self._clock() >= self._known_until:
            self._doors = frozenset(door for door in self._database.read(doors) if door.incarnation != self._but)
            self._known_until = self._clock() + (KNOWN_FOR if self._doors else NOBODY_FOR)
            self.send_to(self._doors - rung, rings)

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
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def send(self, rings: Sequence[Ring]) -> None:
        """Notify, in one statement. What may be heard twice is sent again where a connection turns out to be closed."""
        once = any(isinstance(ring, Told) for ring in rings)
        send = self._database.run_each if once else self._database.run_repeatable
        send(notify, rings)

    def close(self) -> None:
        """There is nothing to close: the database is somebody else's."""


NOTIFY: Final = sa.text(
    "SELECT set_config('synchronous_commit', 'off', true), "
    "(SELECT count(pg_notify(:channel, payload)) FROM unnest(CAST(:payloads AS text[])) AS payload)"
)
"""A ring that a crash of the server loses was lost anyway: no fsync."""


def notify(connection: Connection, rings: Sequence[Ring]) -> None:
    """Send rings with the statement's commit."""
    payloads = [msgspec.json.encode(ring).decode() for ring in rings]
    connection.execute(NOTIFY, {"channel": CHANNEL, "payloads": payloads})


def notified(payload: str) -> Ring | None:
    """The ring of a notification: our own JSON, or what a person writes, names of queues with commas; else None.

    >>> notified("video, mail"), notified(""), notified('{"type":"due","within":1.0}'), notified("no queue!")
    (Work(queues=('video', 'mail')), Work(queues=()), Due(within=1.0, at=None), None)
    """
    try:
        if payload.startswith("{"):
            return msgspec.json.decode(payload, type=Ring)  # type: ignore[no-any-return]
        names = tuple(name.strip() for name in payload.split(",") if name.strip())
        return Work(names) if all(map(QUEUE_NAME.fullmatch, names)) else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
