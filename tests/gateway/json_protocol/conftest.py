"""A client that has nothing but a socket and a JSON library, and connections of it to a server on SQLite."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.gateway.conftest import Serve
from tests.gateway.gateway_thread import GatewayThread


class JsonConnection(ExitStack):
    """One connection."""

    def __init__(self, gateway: GatewayThread) -> None:
        super().__init__()
        self.socket = self.enter_context(socket.create_connection(gateway.address, 20))
        self._lines = self.enter_context(self.socket.makefile("rb"))

    def send(self, *messages: Any) -> None:
        self.socket.sendall(b"".join(json.dumps(message).encode() for message in messages))

    def receive(self) -> Any:
        """The next reply; None at the end of the stream."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def ask(self, cmd: str, **members: Any) -> Any:
        self.send({"cmd": cmd, **members})
        return self.receive()


@pytest.fixture
def gateway(serve: Serve) -> GatewayThread:
    return serve()


@pytest.fixture
def connection(gateway: GatewayThread) -> Iterator[JsonConnection]:
    with JsonConnection(gateway) as connection:
        yield connection


@pytest.fixture
def other(gateway: GatewayThread) -> Iterator[JsonConnection]:
    with JsonConnection(gateway) as other:
        yield other
