"""Serves an ASGI app on listening sockets: starts it, accepts, and drains."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from uvicorn import Config

from peerd.runtime.observability import events
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.web_server.connection_tracker import ClientLimits, ConnectionTracker
from peerd.web_server.http import HttpProtocol
from peerd.web_server.lifespan import Lifespan, ShutdownFailed
from peerd.web_server.listener import SocketListener
from peerd.web_server.uvicorn_log import UvicornLogHandler
from peerd.web_server.websocket import WebSocketProtocol

CANCEL_WITHIN: Final = 1.0
"""Seconds that requests which were cut off have to end."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How an app is served; `forwarded_allow_ips` are the proxies whose X-Forwarded-* headers are believed."""

    limits: ClientLimits = field(default_factory=ClientLimits)
    websocket_bytes: int = 16 * 1024 * 1024
    root_path: str = ""
    forwarded_allow_ips: Sequence[str] = ("127.0.0.1", "::1")
    access_log: bool = False


class WebServer:
    """One life: `start`, `stop_accepting`, `drain`, `shut_down`.

    Args:
        app: the ASGI app.
        options: how it is served.
        state: what `scope["state"]` holds from the beginning.
        events: what happens.
    """

    def __init__(self, app: Any, options: ServerOptions, state: Mapping[str, Any], events: EventBus) -> None:
        self._app = app
        self._options = options
        self._events = events
        self.connections = ConnectionTracker(options.limits, events, dict(state), access_log=options.access_log)
        self._listeners: list[SocketListener] = []
        self._shutdown_task: asyncio.Task[None] | None = None

    async def start(self, sockets: Sequence[socket.socket], on_lifespan_lost: Any) -> None:
        """Start the app, then accept.

        Args:
            sockets: listening; they stay the caller's, and are not closed here.
            on_lifespan_lost: called with words when the app's lifespan ends by itself with an exception.

        Raises:
            StartupFailed: the app did not start.
        """
        self._lifespan = Lifespan(self._app, self.connections.state, on_lifespan_lost)
        await self._lifespan.startup()
        logging.getLogger("uvicorn.error").addHandler(UvicornLogHandler(self._events))
        config = self._config()
        self.connections.set_date(time.time())
        for listening_socket in sockets:
            listening_socket.setblocking(False)
            listener = SocketListener(
                listening_socket, lambda: HttpProtocol(config, self.connections), self._on_accept_error
            )
            listener.start()
            self._listeners.append(listener)

    async def update_date_periodically(self) -> None:
        """Keep the date of responses right, for ever."""
        while True:
            self.connections.set_date(time.time())
            await asyncio.sleep(1.0)

    def stop_accepting(self, *, close_listeners: bool) -> None:
        """Leave what comes to the siblings; or, when there will be none, close the doors. Connections begin to end."""
        for listener in self._listeners:
            if close_listeners:
                listener.stop_and_close()
            else:
                listener.stop()
        self.connections.drain()

    async def drain(self, grace: float) -> None:
        """Answer what clients have begun to ask and let connections end; after the grace, cut off what is left."""
        try:
            async with asyncio.timeout(grace):
                for listener in self._listeners:
                    await listener.wait_attached()
                await self.connections.wait_until_closed()
        except TimeoutError:
            event = events.WebRequestsAborted(
                requests=self.connections.in_flight, connections=len(self.connections.open)
            )
            self._events.emit(event)
            await self.connections.cancel_all(CANCEL_WITHIN)

    async def shut_down(self, within: float) -> None:
        """End the app, within so many seconds. It may be called again."""
        if self._shutdown_task is None:
            self._shutdown_task = asyncio.create_task(self._shut_down(), name="lifespan shutdown")
        await asyncio.wait((self._shutdown_task,), timeout=within)
        if not self._shutdown_task.done():
            error = f"it did not end within {within:g} s"
            self._events.emit(events.AttemptHookFailed(hook="lifespan shutdown", error=error))
            await self._lifespan.cancel()

    async def _shut_down(self) -> None:
        try:
            await self._lifespan.shutdown()
        except ShutdownFailed as error:
            self._events.emit(events.AttemptHookFailed(hook="lifespan shutdown", error=error.reason))

    def _on_accept_error(self, error: BaseException) -> None:
        self._events.emit(events.AcceptFailed(error=describe_exception(error)))

    def _config(self) -> Config:
        options = self._options
        config = Config(
            _as_asgi3(self._app),
            loop="none",
            http="httptools",
            ws=WebSocketProtocol,
            ws_max_size=options.websocket_bytes,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            root_path=options.root_path,
            forwarded_allow_ips=list(options.forwarded_allow_ips),
        )
        config.load()
        return config


def _as_asgi3(app: Any) -> Any:
    """The app as a plain coroutine function: nothing is left to guess about it."""

    async def asgi3(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return asgi3
