"""Serves an ASGI app on listening sockets: starts it, accepts, and drains; and the service of a web process."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from uvicorn import Config

from peerd.config.settings import AccessSettings, WebSettings
from peerd.runtime.metrics.registry import Sample
from peerd.runtime.observability import events, log_messages
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process import exit_codes
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.runtime.socket_listener import SocketListener, server_tls
from peerd.shell import ProcessShell, Service, reasons_to_recycle, spread_factor
from peerd.web_server.app_state import ACCESS_STATE, RINGS_STATE, RingSubscriptions
from peerd.web_server.connection_tracker import ConnectionTracker
from peerd.web_server.http import HttpProtocol
from peerd.web_server.lifespan import Lifespan
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
        failure = await self._lifespan.shutdown()
        if failure is not None:
            self._emit_shutdown_failure(failure)

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


# ---------------------------------------------------------------- the service


END_WITHIN: Final = 3.0
"""Seconds that the app's shutdown has when less of the grace is left."""
ASK_AGAIN_AFTER: Final = 30.0
"""Seconds until a process that is to be recycled asks again for its replacement, which may have failed to boot."""


class WebService(Service):
    """A process that serves an ASGI app.

    Args:
        app: the ASGI app.
        settings: its section.
        access: for the app, in `scope["state"]`.
        run_directory: of the node.
    """

    def __init__(self, app: Any, settings: WebSettings, access: AccessSettings, run_directory: Path) -> None:
        self._app = app
        self._settings = settings
        self._access = access
        self._run_directory = run_directory
        self.options = settings.options
        self.limits = {"memory": settings.recycle_memory, "cpu": settings.recycle_cpu}

    async def start(self, shell: ProcessShell) -> None:
        """Start the app, and accept connections. The app finds its process in `scope["state"]["peerd"]`."""
        self._shell = shell
        link, process = shell.link, shell.process
        rings = RingSubscriptions(process, self._run_directory)
        state = {"peerd": process, ACCESS_STATE: self._access, RINGS_STATE: rings}
        self._server = WebServer(self._app, self._settings, state, shell.events)
        self._count_requests(link.kind)
        await self._server.start(list(link.sockets.values()), link.tainted)
        link.report_in_flight(lambda: self._server.connections.in_flight)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.update_date_periodically(), name="date")
            group.create_task(self._request_recycling(), name="recycling")

    async def drain(self, grace: float) -> None:
        """Stop accepting, and let the requests end.

        The listeners are closed when no other process accepts on them: none does when the node stops, or its master is
        lost.
        """
        link = self._shell.link
        is_replaced = link.is_replaced or link.status != exit_codes.OK
        self._server.stop_accepting(close_listeners=link.master_lost or not is_replaced)
        await self._server.drain(grace)

    async def close(self, grace: float) -> None:
        """Shut the app down."""
        await self._server.shut_down(max(END_WITHIN, grace))

    def _count_requests(self, kind: str) -> None:
        metrics, connections = self._shell.process.metrics, self._server.connections
        metrics.add_source(lambda: [Sample("peerd_web_requests_in_flight", (kind,), connections.in_flight)])
        connections.observe = lambda status, seconds: metrics.observe(
            "peerd_web_request_seconds", seconds, kind, f"{status // 100}xx"
        )

    async def _request_recycling(self) -> None:
        """When the process has answered enough requests or is old enough, ask for its replacement until it is there.

        It serves meanwhile: if all processes stopped serving first, requests would wait for as long as a boot takes.
        Their numbers of requests differ as their ages do, because they share the requests evenly.
        """
        after = self._settings.recycle_after
        reasons = reasons_to_recycle(
            None if after is None else max(1, round(after * spread_factor())),
            self._settings.recycle_age,
            lambda: self._server.connections.answered,
            lambda answered: f"it has answered {answered} requests (recycle_after)",
        )
        async for reason in reasons:
            self._shell.link.request_replacement(reason)
            await asyncio.sleep(ASK_AGAIN_AFTER)
