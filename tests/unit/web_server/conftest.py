"""`serve`: serve an app on a socket of its own, in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from peerd.config.settings import WebSettings
from peerd.runtime.observability.events import Event, EventBus
from peerd.testing import eventually_async
from peerd.web_server.server import WebServer
from tests.unit.web_server.apps import RawConnection

_numbers = count(1)


def web_settings(**keys: Any) -> WebSettings:
    return WebSettings(app="tests:app", bind=("unix:socket",), **keys)


class Served:
    def __init__(self, app: Any, settings: WebSettings, path: Path, afterwards: AsyncExitStack) -> None:
        self.events: list[Event] = []
        self.lost: list[str] = []
        self.server = WebServer(app, settings, {"peerd": "the context"}, EventBus(self.events.append))
        self.path = path / f"socket-{next(_numbers)}"
        self._afterwards = afterwards
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(self.path))
        self.listening.listen(100)

    async def start(self) -> Served:
        await self.server.start([self.listening], self.lost.append)
        return self

    async def connect(self) -> RawConnection:
        reader, writer = await asyncio.open_unix_connection(self.path)
        self._afterwards.callback(writer.close)
        return RawConnection(reader, writer)

    def start_draining(self, grace: float = 30.0, *, close_listeners: bool = False) -> asyncio.Task[None]:
        self.server.stop_accepting(close_listeners=close_listeners)
        return asyncio.create_task(self.server.drain(grace))

    async def wait_until_draining(self) -> None:
        await eventually_async(lambda: self.server.connections.draining)


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as afterwards:

        async def make(app: Any, settings: WebSettings | None = None) -> Served:
            served = Served(app, settings or web_settings(), tmp_path, afterwards)
            afterwards.push_async_callback(_shut_down, served)
            return await served.start()

        yield make


async def _shut_down(served: Served) -> None:
    served.server.stop_accepting(close_listeners=False)
    await served.server.drain(0.0)
    await served.server.shut_down(5.0)
    served.listening.close()
