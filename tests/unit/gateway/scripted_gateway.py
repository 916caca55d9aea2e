"""A program that answers the messages of one client after another as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from peerd.gateway.protocols.json.parser import MessageParser

Answer = Callable[[Any], bytes | None]
"""What is sent for a message; None closes the connection."""


class ScriptedGateway:
    def __init__(self, answer: Answer) -> None:
        self.messages: list[Any] = []
        self.ended = threading.Event()
        """Whether a client has closed its connection."""
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def serve(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    self._converse(connection)
                self.ended.set()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _converse(self, connection: socket.socket) -> None:
        parser = MessageParser(65535)
        with suppress(ConnectionError):
            while data := connection.recv(65536):
                parser.feed(data)
                for message in parser.messages():
                    self.messages.append(message)
                    reply = self._answer(message)
                    if reply is None:
                        return
                    connection.sendall(reply)


@contextmanager
def scripted_gateway(answer: Answer) -> Iterator[ScriptedGateway]:
    gateway = ScriptedGateway(answer)
    thread = threading.Thread(target=gateway.serve, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        gateway.close()
        thread.join(10)
        assert not thread.is_alive()
