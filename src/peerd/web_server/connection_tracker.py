"""State that all connections of a process share: limits, draining, and the requests in flight."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final, Protocol

from uvicorn.server import ServerState

from peerd.config.settings import WebSettings
from peerd.domain.quoting import without_tokens
from peerd.runtime.observability import events
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.web_server.app_state import TrustedProxies

MAX_PATH_CHARACTERS: Final = 200
"""Characters of a path that an event carries."""


class TrackedConnection(Protocol):
    """A connection of HTTP, or of a WebSocket."""

    def drain(self) -> None:
        """Close it when what runs on it has ended."""

    def abort(self) -> None:
        """Close it at once."""


@dataclass(slots=True)
class ConnectionTracker:
    """Shared by all connections of the process; `state` is copied into the `scope["state"]` of each request."""

    settings: WebSettings
    events: EventBus
    state: dict[str, Any]
    observe: Callable[[int, float], object] = lambda _, __: None
    """Called with the status and the seconds of each request that was answered."""
    draining: bool = False
    grace_is_over: bool = False
    uvicorn: ServerState = field(default_factory=ServerState)
    open: set[TrackedConnection] = field(default_factory=set)
    _none_open: asyncio.Event = field(default_factory=asyncio.Event)
    proxies: TrustedProxies = field(init=False)

    def __post_init__(self) -> None:
        self._none_open.set()
        self.proxies = TrustedProxies(self.settings.forwarded_allow_ips)

    @property
    def in_flight(self) -> int:
        """Requests and WebSockets that are being answered."""
        return len(self.uvicorn.tasks)

    @property
    def answered(self) -> int:
        """Requests that have been answered."""
        return self.uvicorn.total_requests

    def set_date(self, now: float) -> None:
        """Set the date header of responses; seconds since 1970."""
        self.uvicorn.default_headers = [(b"date", formatdate(now, usegmt=True).encode())]

    def connection_opened(self, connection: TrackedConnection) -> None:
        """Add a connection, and drain it if the process is draining."""
        self.open.add(connection)
        self._none_open.clear()
        if self.draining:
            connection.drain()

    def connection_closed(self, connection: TrackedConnection) -> None:
        """Remove a connection that has closed, or that another protocol has taken over."""
        self.open.discard(connection)
        if not self.open:
            self._none_open.set()

    def drain(self) -> None:
        self.draining = True
        for connection in list(self.open):
            connection.drain()

    def emit_failure(self, scope: Any, error: BaseException) -> None:
        """Emit that the app has raised while it answered a request or a WebSocket."""
        text = "not answered within the grace" if self.grace_is_over else describe_exception(error)
        trace = "".join(traceback.format_exception(error))
        self.events.emit(events.WebRequestFailed(what=request_line(scope), error=text, traceback=trace), error)

    async def wait_until_closed(self) -> None:
        """Wait until all connections have closed and the app's calls have returned."""
        while self.open or self.uvicorn.tasks:
            await self._none_open.wait()
            if self.uvicorn.tasks:
                await asyncio.wait(self.uvicorn.tasks)

    async def cancel_all(self, within: float) -> None:
        """Cancel the app's calls, wait up to this many seconds for them, and abort all connections."""
        self.grace_is_over = True
        for task in self.uvicorn.tasks:
            task.cancel()
        if self.uvicorn.tasks:
            await asyncio.wait(self.uvicorn.tasks, timeout=within)
        for connection in list(self.open):
            connection.abort()


def request_line(scope: Any) -> str:
    """Method and path of a request for the log: without the query, which may hold secrets, and printable.

    >>> request_line({"type": "http", "method": "GET", "raw_path": b"/a%0Ab"})
    'GET /a%0Ab'
    """
    path = without_tokens(scope["raw_path"].decode("ascii", "backslashreplace"))
    return f"{scope.get('method', 'WEBSOCKET')} {path[:MAX_PATH_CHARACTERS]}"
