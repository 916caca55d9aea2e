"""The UDP socket at which a node receives rings, and its addresses.

The cost of a flood is bounded: a datagram that is not a ring is dropped by its length and first bytes, a forged one by
its MAC; after a number of them the event loop runs other callbacks, and the kernel drops the rest.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sqlalchemy.engine import URL

from peerd.agent.doorbell.health import RejectedRings
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain.ring import Ring
from peerd.doorbell.datagram import MAX_DATAGRAM_BYTES, RingRejected, Verifier

DATAGRAMS_PER_TURN: Final = 64
"""Datagrams read before the event loop runs other callbacks."""
PAUSE_BETWEEN_TURNS: Final = 0.005
"""Seconds until the next ones are read."""
LOOPBACK: Final = "127.0.0.1"
DISCARD_PORT: Final = 9
"""Nothing is sent to it: it only selects a route."""


@dataclass(eq=False)
class UdpListener:
    """Receives datagrams, from `open` to `close`."""

    verifier: Verifier
    on_ring: Callable[[Ring], None]
    """Called with each ring."""
    rejected: RejectedRings
    """Counts the other datagrams."""

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
        try:
            udp_socket.setblocking(False)
            udp_socket.bind((host, port))
        except OSError:
            udp_socket.close()
            raise
        self._socket = udp_socket
        self._resume(udp_socket)
        return int(udp_socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
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
