"""Serves an ASGI app on listening sockets: starts it, accepts, and drains."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from uvicorn import Config

from peerd.config.settings import WebSettings
from peerd.runtime.observability import events, log_messages
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.runtime.socket_listener import SocketListener, server_tls
from peerd.web_server.connection_tracker import ConnectionTracker
from peerd.web_server.http import HttpProtocol
from peerd.web_server.lifespan import Lifespan, ShutdownFailed
from peerd.web_server.websocket import WebSocketProtocol

CANCEL_WITHIN: Final = 1.0
"""Seconds that cancelled requests have to end."""


class WebServer:
    """Serves one app: `start`, `stop_accepting`, `drain`, `shut_down`, in this order.

    Args:
        app: the ASGI app.
        settings: limits and options of its section.
        state: the initial `scope["state"]`.
        events: what happens.
    """

    def __init__(self, app: Any, settings: WebSettings, state: Mapping[str, Any], events: EventBus) -> None:
        self._app = app
        self._settings = settings
        self._events = events
        self.connections = ConnectionTracker(settings, events, dict(state))
        self._listeners: list[SocketListener] = []
        self._shutdown_task: asyncio.Task[None] | None = None

    async def start(self, sockets: Sequence[socket.socket], on_lifespan_lost: Any) -> None:
        """Start the app, then accept.

        Args:
            sockets: listening; the caller closes them.
            on_lifespan_lost: called with a message when the app's lifespan ends by an exception.

        Raises:
            StartupFailed: the app did not start.
            OSError, ssl.SSLError: the certificate or its key cannot be loaded.
        """
        self._lifespan = Lifespan(self._app, self.connections.state, on_lifespan_lost)
        await self._lifespan.startup()
        logging.getLogger("uvicorn.error").addHandler(UvicornLogHandler(self._events))
        config = self._uvicorn_config()
        tls = server_tls(self._settings.tls_certificate, self._settings.tls_key)
        self.connections.set_date(time.time())
        for listening_socket in sockets:
            listening_socket.setblocking(False)
            listener = SocketListener(
                listening_socket,
                lambda: HttpProtocol(config, self.connections),
                lambda error: self._events.emit(log_messages.accept_failed(describe_exception(error))),
                tls,
            )
            listener.start()
            self._listeners.append(listener)

    async def update_date_periodically(self) -> None:
        """Update the date of responses each second; it does not return."""
        while True:
            self.connections.set_date(time.time())
            await asyncio.sleep(1.0)

    def stop_accepting(self, *, close_listeners: bool) -> None:
        """Stop accepting and drain the connections; `close_listeners` if no other process accepts on the sockets."""
        for listener in self._listeners:
            if close_listeners:
                listener.stop_and_close()
            else:
                listener.stop()
        self.connections.drain()

    async def drain(self, grace: float) -> None:
        """Wait until requests are answered and connections closed; after the grace, cancel and abort the rest."""
        try:
            async with asyncio.timeout(grace):
                for listener in self._listeners:
                    await listener.wait_attached()
                await self.connections.wait_until_closed()
        except TimeoutError:
            requests, connections = self.connections.in_flight, len(self.connections.open)
            self._events.emit(log_messages.web_requests_aborted(requests, connections))
            await self.connections.cancel_all(CANCEL_WITHIN)

    async def shut_down(self, within: float) -> None:
        """Shut the app down, within this many seconds. It may be called again."""
        if self._shutdown_task is None:
            self._shutdown_task = asyncio.create_task(self._shut_down(), name="lifespan shutdown")
        await asyncio.wait((self._shutdown_task,), timeout=within)
        if not self._shutdown_task.done():
            self._emit_shutdown_failure(f"it did not end within {within:g} s")
            await self._lifespan.cancel()

    async def _shut_down(self) -> None:
        try:
            await self._lifespan.shutdown()
        except ShutdownFailed as error:
            self._emit_shutdown_failure(error.reason)

    def _emit_shutdown_failure(self, error: str) -> None:
        self._events.emit(events.AttemptHookFailed(hook="lifespan shutdown", error=error))

    def _uvicorn_config(self) -> Config:
        async def app(scope: Any, receive: Any, send: Any) -> None:  # a coroutine function, as interface="asgi3" wants
            await self._app(scope, receive, send)

        settings = self._settings
        config = Config(
            app,
            loop="none",
            http="httptools",
            ws=WebSocketProtocol,
            ws_max_size=settings.max_message,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            root_path=settings.root_path,
            forwarded_allow_ips=list(settings.forwarded_allow_ips),
        )
        config.load()
        return config


class UvicornLogHandler(logging.Handler):
    """Emits uvicorn's warnings and errors as events, except exceptions of the app, which have events of their own."""

    def __init__(self, events: EventBus) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if not record.exc_info:
            self._events.emit(
                log_messages.http_server_warned(record.getMessage(), error=record.levelno >= logging.ERROR)
            )
