"""The door of a node: a UDP socket, and what is refused at it.

A flood is bounded before it costs anything: a datagram that is no ring is dropped by its length and first bytes, a
forged one by its MAC; so many are read at a time, then the event loop has its turn, and the kernel drops the rest.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from peerd.agent.doorbell.refusals import Refusals
from peerd.domain.ring import Ring
from peerd.doorbell.datagram import MAX_DATAGRAM_BYTES, RingRejected, Verifier

DATAGRAMS_PER_TURN: Final = 64
"""Datagrams that are read before the event loop has its turn."""
PAUSE_BETWEEN_TURNS: Final = 0.005
"""Seconds until the next ones are read."""


class UdpListener:
    """Hears datagrams, from `open` to `close`.

    Args:
        verifier: knows which are to be listened to.
        on_ring: gets their rings.
        refusals: what is refused.
    """

    def __init__(self, verifier: Verifier, on_ring: Callable[[Ring], None], refusals: Refusals) -> None:
        self._verifier = verifier
        self._on_ring = on_ring
        self._refusals = refusals
        self._socket: socket.socket | None = None
        self._resume_timer: asyncio.TimerHandle | None = None

    def open(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: the address cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        udp_socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            udp_socket.setblocking(False)
            udp_socket.bind((host, port))
        except OSError:
            udp_socket.close()
            raise
        self._socket = udp_socket
        self._loop.add_reader(udp_socket, self._read, udp_socket)
        return int(udp_socket.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self, udp_socket: socket.socket) -> None:
        with suppress(OSError):  # none is left, or one of ours was answered by "nobody there"
            for _ in range(DATAGRAMS_PER_TURN):
                datagram, sender = udp_socket.recvfrom(MAX_DATAGRAM_BYTES + 1)
                self._receive(datagram, str(sender[0]))
            self._loop.remove_reader(udp_socket)
            self._resume_timer = self._loop.call_later(PAUSE_BETWEEN_TURNS, self._resume, udp_socket)

    def _resume(self, udp_socket: socket.socket) -> None:
        self._loop.add_reader(udp_socket, self._read, udp_socket)

    def _receive(self, datagram: bytes, sender: str) -> None:
        try:
            ring = self._verifier.open(datagram)
        except RingRejected as refused:
            self._refusals.refuse(refused, sender)
        else:
            self._on_ring(ring)
