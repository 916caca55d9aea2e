"""A server that answers each connection with given bytes, or not at all."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def answering(*parts: bytes, pause: float = 0.0, endless: bool = False, is_reset: bool = False) -> Iterator[str]:
    """The URL of a server that sends these parts, with a pause after each; the last ones again and again if endless.

    Then it reads what else comes until the client closes the connection; if ``is_reset``, it resets it instead.
    """
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            for part in parts:
                connection.sendall(part)
                over.wait(pause)
            while endless and not over.is_set():
                connection.sendall(parts[-1])
                time.sleep(pause)
            (_reset if is_reset else _drain)(connection)

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=answer, args=(connection,)))
            threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield "http://127.0.0.1:{1}".format(*listening.getsockname())
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in threads:
                one.join()


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _drain(connection: socket.socket) -> None:
    """Read to the end: a connection that is closed before all is read is reset, and what was sent may be lost."""
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass
