"""`serve`: serve an app on a socket of its own, in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.observability.events import Events, Fact
from peerd.testing import eventually_async
from peerd.web_server.server import Options, WebServer
from tests.unit.web_server.apps import Client


class Served:
    """A server, what happened in it, and connections to it."""

    def __init__(self, app: Any, options: Options, path: Path, afterwards: AsyncExitStack) -> None:
        self.facts: list[Fact] = []
        self.lost: list[str] = []
        self.server = WebServer(app, options, {"peerd": "the context"}, Events(self.facts.append))
        self.path = path
        self._afterwards = afterwards
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen(100)

    async def start(self) -> Served:
        await self.server.start([self.listening], self.lost.append)
        return self

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_unix_connection(self.path)
        self._afterwards.callback(writer.close)
        return Client(reader, writer)

    def leave(self, grace: float = 30.0, *, for_good: bool = False) -> asyncio.Task[None]:
        """Begin to drain, as a process does that is replaced."""
        self.server.stop_accepting(for_good=for_good)
        return asyncio.create_task(self.server.drain(grace))

    async def drains(self) -> None:
        """Wait until its connections have been told that it drains."""
        await eventually_async(lambda: self.server.traffic.draining)


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as afterwards:

        async def make(app: Any, options: Options | None = None) -> Served:
            served = Served(app, options or Options(), tmp_path / "socket", afterwards)
            afterwards.push_async_callback(_end, served)
            return await served.start()

        yield make


async def _end(served: Served) -> None:
    served.server.stop_accepting(for_good=False)
    await served.server.drain(0.0)
    await served.server.end(5.0)
    served.listening.close()
