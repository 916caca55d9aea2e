"""The queue server on a database of the test, in a thread: gateway, sessions and sockets, without a node round it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Self

from peerd.config.settings import GatewaySettings, QueueSettings
from peerd.domain.ring import Ring
from peerd.gateway.gateway import Gateway
from peerd.gateway.operations import Holder
from peerd.gateway.server import GatewayServer
from peerd.runtime.observability.events import EventBus
from peerd.store import nodes
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.processes import register_process
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection

TIMEOUT = 60.0


class GatewayThread:
    """One gateway process of a node, as a thread."""

    def __init__(
        self,
        database: Database,
        settings: GatewaySettings | None = None,
        queues: Mapping[str, QueueSettings] | None = None,
        *,
        is_alone: bool = True,
        node: str = "gateway",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._database = database
        self._settings = settings or GatewaySettings()
        self._queues = queues or {}
        self._is_alone = is_alone
        self._tls = tls
        self.rings: list[Ring] = []
        self.node = node
        self.holder = self._register()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address: tuple[str, int] = self._socket.getsockname()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="gateway", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT)
        self._socket.close()

    def connect(self) -> BeanstalkConnection:
        return BeanstalkConnection(self.address)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on the event loop, and return its result."""

        async def run() -> Any:
            result = function(*arguments)
            return await result if isinstance(result, Coroutine) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT)

    def _register(self) -> Holder:
        of_node: dict[str, Any] = {"incarnation": nodes.new_incarnation()}
        node_id = self._database.run(nodes.register_incarnation, self.node, of_node["incarnation"], replaces=None)
        assert node_id is not None
        of_process: dict[str, Any] = {"kind": "gateway", "slot": "gateway-1", "role": "gateway"}
        process_id = self._database.run(register_process, node_id=node_id, pid=os.getpid(), **of_node, **of_process)
        return Holder(node_id, of_node["incarnation"], process_id, 60)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        events = EventBus()
        outages = OutageTracker(events, self._loop.time)
        self.state = Gateway(
            self._database, self.holder, self._settings, self._queues, self.rings.append, events, outages,
            is_alone=self._is_alone,
        )  # fmt: skip
        self.state.start()
        self.server = GatewayServer(self.state, events, self._tls)
        self.server.start([self._socket])
        self._ready.set_result(None)
        await self._stop.wait()
        self.server.stop_accepting(close_listeners=False)
        await self.server.drain(0)
        await self.state.operations.finish()
        self.state.close()


def bytes_held_for(gateway: GatewayThread, client: socket.socket, commands: bytes) -> int:
    """Send commands and read no reply until the server takes no more; how many bytes of replies it holds then."""
    client.setblocking(False)
    client.send(commands)
    connection = eventually(lambda: connection_of(gateway, client))

    def is_left_alone() -> bool:
        with contextlib.suppress(BlockingIOError):
            client.send(commands)
        session = connection._session
        return session.is_suspended and not session.replies and not connection._is_reading

    eventually(lambda: gateway.call(is_left_alone))
    return int(connection._transport.get_write_buffer_size())


def connection_of(gateway: GatewayThread, client: socket.socket) -> Any:
    """The server's side of a connection; None before it was accepted."""
    for connection in gateway.call(lambda: list(gateway.server._connections)):
        if connection._transport.get_extra_info("peername") == client.getsockname():
            return connection
    return None
