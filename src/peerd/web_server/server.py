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
from peerd.runtime.observability.events import Events
from peerd.runtime.process.uncaught_exceptions import words
from peerd.web_server.connection_tracker import Limits, Traffic
from peerd.web_server.http import HttpProtocol
from peerd.web_server.lifespan import Lifespan, ShutdownFailed
from peerd.web_server.listener import Listener
from peerd.web_server.uvicorn_log import ServerLog
from peerd.web_server.websocket import WebSocketProtocol

GIVE_BACK: Final = 1.0
"""Seconds that requests which were cut off have to end."""


@dataclass(frozen=True, slots=True)
class Options:
    """How an app is served; `forwarded_allow_ips` are the proxies whose X-Forwarded-* headers are believed."""

    limits: Limits = field(default_factory=Limits)
    websocket_bytes: int = 16 * 1024 * 1024
    root_path: str = ""
    forwarded_allow_ips: Sequence[str] = ("127.0.0.1", "::1")
    access_log: bool = False


class WebServer:
    """One life: `start`, `stop_accepting`, `drain`, `end`.

    Args:
        app: the ASGI app.
        options: how it is served.
        state: what `scope["state"]` holds from the beginning.
        events: what happens.
    """

    def __init__(self, app: Any, options: Options, state: Mapping[str, Any], events: Events) -> None:
        self._app = app
        self._options = options
        self._events = events
        self.traffic = Traffic(options.limits, events, dict(state), access_log=options.access_log)
        self._listeners: list[Listener] = []
        self._ending: asyncio.Task[None] | None = None

    async def start(self, sockets: Sequence[socket.socket], lost: Any) -> None:
        """Start the app, then accept.

        Args:
            sockets: listening; they stay the caller's, and are not closed here.
            lost: called with words when the app's lifespan ends by itself with an exception.

        Raises:
            StartupFailed: the app did not start.
        """
        self._lifespan = Lifespan(self._app, self.traffic.state, lost)
        await self._lifespan.startup()
        logging.getLogger("uvicorn.error").addHandler(ServerLog(self._events))
        config = self._config()
        self.traffic.set_date(time.time())
        for one in sockets:
            one.setblocking(False)
            listener = Listener(one, lambda: HttpProtocol(config, self.traffic), self._on_trouble)
            listener.start()
            self._listeners.append(listener)

    async def tick(self) -> None:
        """Keep the date of responses right, for ever."""
        while True:
            self.traffic.set_date(time.time())
            await asyncio.sleep(1.0)

    def stop_accepting(self, *, for_good: bool) -> None:
        """Leave what comes to the siblings; or, when there will be none, close the doors. Connections begin to end."""
        for listener in self._listeners:
            if for_good:
                listener.stop_for_good()
            else:
                listener.stop()
        self.traffic.drain()

    async def drain(self, grace: float) -> None:
        """Answer what clients have begun to ask and let connections end; after the grace, cut off what is left."""
        try:
            async with asyncio.timeout(grace):
                for listener in self._listeners:
                    await listener.settle()
                await self.traffic.ended()
        except TimeoutError:
            left = events.RequestsCutOff(requests=self.traffic.in_flight, connections=len(self.traffic.open))
            self._events.emit(left)
            await self.traffic.cut_off(GIVE_BACK)

    async def end(self, within: float) -> None:
        """End the app, within so many seconds. It may be called again."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="lifespan shutdown")
        await asyncio.wait((self._ending,), timeout=within)
        if not self._ending.done():
            error = f"it did not end within {within:g} s"
            self._events.emit(events.HookFailed(hook="lifespan shutdown", error=error))
            await self._lifespan.cancel()

    async def _end(self) -> None:
        try:
            await self._lifespan.shutdown()
        except ShutdownFailed as error:
            self._events.emit(events.HookFailed(hook="lifespan shutdown", error=error.reason))

    def _on_trouble(self, error: BaseException) -> None:
        self._events.emit(events.AcceptFailed(error=words(error)))

    def _config(self) -> Config:
        options = self._options
        config = Config(
            _only_asgi3(self._app),
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


def _only_asgi3(app: Any) -> Any:
    """The app as a plain coroutine function: nothing is left to guess about it."""

    async def asgi3(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return asgi3
