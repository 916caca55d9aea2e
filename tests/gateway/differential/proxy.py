"""A server with a mistake, to prove that the comparison finds it: bytes between a client and a server are changed."""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Final, Self

from tests.gateway.beanstalk_connection import Address, BeanstalkConnection
from tests.gateway.beanstalk_servers import BeanstalkServer

Change = Callable[[bytes], bytes]


def substitution(pattern: bytes, by: bytes) -> Change:
    r"""A change of everything that matches.

    >>> substitution(rb"KICKED \d+", b"KICKED 1")(b"KICKED 7\r\n")
    b'KICKED 1\r\n'
    """
    return lambda data: re.sub(pattern, by, data)


MISTAKES: Final[dict[str, tuple[Change | None, Change | None]]] = {
    "touch answers not found": (None, substitution(rb"TOUCHED", b"NOT_FOUND")),
    "release ignores the priority": (substitution(rb"release (\d+) \d+ ", rb"release \1 7 "), None),
    "bury ignores the priority": (substitution(rb"bury (\d+) \d+", rb"bury \1 7"), None),
    "a larger kick is one of 1": (substitution(rb"kick \d{2,}", b"kick 1"), None),
    "reserve-job takes nothing": (substitution(rb"reserve-job \d+", b"reserve-job 0"), None),
    "a tube is never ignored": (substitution(rb"ignore [a-z-]+\r", b"ignore nowhere\r"), None),
    "bodies end at a zero byte": (None, substitution(rb"\0", b" ")),
    "a reserved job is called ready": (None, substitution(rb"state: reserved", b"state: ready   ")),
    "a delay of release is lost": (substitution(rb"(release \d+ \d+) [1-9]\d*", rb"\1 0"), None),
    "a pause is lost": (substitution(rb"(pause-tube [a-z-]+) 1\d*", rb"\1 0"), None),
}
"""Changes of what is asked and of what is answered."""


class MistakenServer(BeanstalkServer):
    """A server that is spoken to through a change; it is started and stopped as the one behind it."""

    def __init__(self, server: BeanstalkServer, asked: Change | None, answered: Change | None) -> None:
        super().__init__(server.kind)
        self._behind = server
        self._changes = asked, answered
        self._closed = ExitStack()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listening = self._closed.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._ending, self._end = (self._closed.enter_context(one) for one in socket.socketpair())
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.close()
        for thread in self._threads:
            thread.join()
        self._closed.close()
        self.stop()

    @property
    def address(self) -> Address:
        """Where the proxy listens."""
        host, port = self._listening.getsockname()
        return host, port

    def connect(self) -> BeanstalkConnection:
        """A connection through the proxy."""
        return BeanstalkConnection(self.address)

    def _accept(self) -> None:
        while self._listening in select.select([self._listening, self._ending], [], [])[0]:
            client, _ = self._listening.accept()
            behind = self._behind.address
            assert isinstance(behind, tuple)
            self._start(self._pass, client, socket.create_connection(behind))

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        """Pass what comes from either side to the other, until one of them ends."""
        asked, answered = self._changes
        other = {client: (server, asked), server: (client, answered)}
        with client, server, suppress(OSError):
            while self._ending not in (ready := select.select([client, server, self._ending], [], [])[0]):
                for one in ready:
                    target, change = other[one]
                    if not (data := one.recv(1 << 20)):
                        return
                    target.sendall(change(data) if change else data)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
