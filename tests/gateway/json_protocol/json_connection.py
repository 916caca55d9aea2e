"""A client of the JSON protocol that has nothing but a socket and a JSON library."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any, Self

from tests.gateway.gateway_thread import GatewayThread


class JsonConnection:
    """A socket and a JSON library: what a client without ours has."""

    def __init__(self, gateway: GatewayThread) -> None:
        self.socket = socket.create_connection(gateway.address)
        self.socket.settimeout(20)
        self._lines = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lines.close()
        self.socket.close()

    def send(self, *messages: Any) -> None:
        self.socket.sendall(b"".join(json.dumps(message).encode() for message in messages))

    def receive(self) -> Any:
        """The next reply; None at the end of the stream."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def ask(self, cmd: str, **members: Any) -> Any:
        self.send({"cmd": cmd, **members})
        return self.receive()
