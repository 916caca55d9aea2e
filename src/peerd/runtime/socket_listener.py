"""Accepts connections from a listening socket that several processes share, by TLS where there is a certificate.

asyncio's own server is not used. When it is closed it loses connections that it has accepted and not yet attached
(CPython #109564); and when descriptors run out it reports an uncaught exception, which would taint the process.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl


ACCEPTS_PER_WAKE_UP: Final = 16
"""Connections accepted at one wake-up of the loop; the rest is left to the other processes, which wake up too."""

PAUSE_AFTER_ERROR: Final = 0.5
"""Seconds without accepting after the system has had no descriptor or memory for one more connection."""


# its answer, and its place among the requests of the process, are free again then
UNREAD_FOR: Final = 600.0
"""Seconds after which the system ends a connection whose client takes nothing of what waits for it."""


class SocketListener:
    """Accepts from one socket.

    Args:
        listening_socket: non-blocking; the caller closes it.
        make_protocol: for each connection.
        on_error: called with the exception when a connection could not be accepted or attached.
        tls: for connections by TLS.
    """

    def __init__(
        self,
        listening_socket: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        on_error: Callable[[BaseException], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = listening_socket
        self._make_protocol = make_protocol
        self._on_error = on_error
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._attaching: set[asyncio.Task[Any]] = set()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        self._resume_timer = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def stop(self) -> None:
        """Stop accepting; connections in the queue are left to the other processes. It may be called again."""
        if self._stopped:
            return
        self._stopped = True
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        self._loop.remove_reader(self._socket.fileno())

    def stop_and_leave(self) -> None:
        """Stop accepting, and close this process's copy of the socket.

        While a process drains for long, its copy would keep an address open that nothing accepts on any more.
        """
        self.stop()
        self._socket.close()

    def stop_and_close(self) -> None:
        """Accept the connections in the queue, then close the socket: no other process will accept them."""
        if self._stopped:
            return
        self.stop()
        while self._accept_one():
            pass
        self._socket.close()

    async def wait_attached(self) -> None:
        """Wait until each accepted connection has its protocol."""
        while self._attaching:
            await asyncio.wait(self._attaching)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_UP):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Whether a connection was accepted, so that there may be another."""
        try:
            connection, _peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            self._on_error(error)
            # The socket stays readable, so the loop would call at once again, and fail again.
            self._loop.remove_reader(self._socket.fileno())
            if not self._stopped:
                self._resume_timer = self._loop.call_later(PAUSE_AFTER_ERROR, self.start)
            return False
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:  # asyncio does it only where the listening socket names its protocol
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_FOR * 1000))
        attached = self._loop.connect_accepted_socket(self._make_protocol, connection, ssl=self._tls)
        task = self._loop.create_task(attached)
        self._attaching.add(task)
        task.add_done_callback(self._attached)
        return True

    def _attached(self, task: asyncio.Task[Any]) -> None:
        self._attaching.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)


def server_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context of a server's connections by TLS, 1.2 or later.

    Args:
        certificate: a PEM file with the certificate and those that signed it; None: there is no TLS.
        key: a PEM file with its key.

    Raises:
        OSError, ssl.SSLError: the certificate or its key cannot be loaded.
    """
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context
