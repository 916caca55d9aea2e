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
from peerd.doorbell.datagram import LARGEST, Opener, RingRefused

AT_A_TIME: Final = 64
"""Datagrams that are read before the event loop has its turn."""
REST: Final = 0.005
"""Seconds until the next ones are read."""


class OpenDoor:
    """Hears datagrams, from `open` to `close`.

    Args:
        opener: knows which are to be listened to.
        hear: gets their rings.
        refusals: what is refused.
    """

    def __init__(self, opener: Opener, hear: Callable[[Ring], None], refusals: Refusals) -> None:
        self._opener = opener
        self._hear = hear
        self._refusals = refusals
        self._socket: socket.socket | None = None
        self._resting: asyncio.TimerHandle | None = None

    def open(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: the address cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        one = socket.socket(family, socket.SOCK_DGRAM)
        try:
            one.setblocking(False)
            one.bind((host, port))
        except OSError:
            one.close()
            raise
        self._socket = one
        self._loop.add_reader(one, self._read, one)
        return int(one.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._resting is not None:
            self._resting.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self, one: socket.socket) -> None:
        with suppress(OSError):  # none is left, or one of ours was answered by "nobody there"
            for _ in range(AT_A_TIME):
                datagram, sender = one.recvfrom(LARGEST + 1)
                self._take(datagram, str(sender[0]))
            self._loop.remove_reader(one)
            self._resting = self._loop.call_later(REST, self._go_on, one)

    def _go_on(self, one: socket.socket) -> None:
        self._loop.add_reader(one, self._read, one)

    def _take(self, datagram: bytes, sender: str) -> None:
        try:
            ring = self._opener.open(datagram)
        except RingRefused as refused:
            self._refusals.refuse(refused, sender)
        else:
            self._hear(ring)
