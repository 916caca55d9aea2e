"""What all connections of a process share: limits, whether it is draining, and what is going on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final, Protocol

from uvicorn.server import ServerState

from peerd.runtime.observability.events import EventBus

MAX_PATH_CHARACTERS: Final = 200
"""Characters of a path that an event carries."""


class DrainableConnection(Protocol):
    """A connection."""

    def drain(self) -> None:
        """Come to an end soon, and lose nothing."""
        ...

    def abort(self) -> None:
        """End now."""
        ...


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client may take. `concurrency` counts requests at once in this process, None is no limit.

    `head_bytes` is the size of a request's line and headers, and of its trailers; `head_timeout` the seconds that a
    head may take to arrive, and `keep_alive` the seconds that an idle connection is kept. In each `body_timeout`
    seconds a body must grow by `body_rate` bytes per second on average (at least by one byte), or end.
    """

    concurrency: int | None = None
    head_bytes: int = 65_536
    head_timeout: float = 30.0
    keep_alive: float = 5.0
    body_timeout: float = 30.0
    body_rate: int = 500


@dataclass(slots=True)
class ConnectionTracker:
    """Shared by all connections of the process."""

    limits: ClientLimits
    events: EventBus
    state: dict[str, Any]
    """Copied into the `scope["state"]` of each request."""
    access_log: bool = False
    draining: bool = False
    grace_is_over: bool = False
    uvicorn: ServerState = field(default_factory=ServerState)
    open: set[DrainableConnection] = field(default_factory=set)
    _none_open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._none_open.set()

    @property
    def in_flight(self) -> int:
        """Requests and WebSockets that are being answered."""
        return len(self.uvicorn.tasks)

    @property
    def answered(self) -> int:
        """Requests that have been answered."""
        return self.uvicorn.total_requests

    def set_date(self, now: float) -> None:
        """Let responses carry this date; seconds since 1970."""
        self.uvicorn.default_headers = [(b"date", formatdate(now, usegmt=True).encode())]

    def connection_opened(self, connection: DrainableConnection) -> None:
        """Note a connection, and tell it if the process is leaving."""
        self.open.add(connection)
        self._none_open.clear()
        if self.draining:
            connection.drain()

    def connection_closed(self, connection: DrainableConnection) -> None:
        """Note that a connection has ended, or is another's now."""
        self.open.discard(connection)
        if not self.open:
            self._none_open.set()

    def drain(self) -> None:
        """Let every connection come to its end."""
        self.draining = True
        for connection in list(self.open):
            connection.drain()

    async def wait_until_closed(self) -> None:
        """Wait until all connections have closed, and what the app does after its answers is done."""
        while self.open or self.uvicorn.tasks:
            await self._none_open.wait()
            if self.uvicorn.tasks:
                await asyncio.wait(self.uvicorn.tasks)

    async def cancel_all(self, within: float) -> None:
        """Cancel what still runs and end all connections; wait so many seconds at the most."""
        self.grace_is_over = True
        for task in self.uvicorn.tasks:
            task.cancel()
        if self.uvicorn.tasks:
            await asyncio.wait(self.uvicorn.tasks, timeout=within)
        for connection in list(self.open):
            connection.abort()


def request_line(scope: Any) -> str:
    """Method and path of a request, as a log may have it: no query, which may hold secrets, and nothing unprintable.

    >>> request_line({"type": "http", "method": "GET", "raw_path": b"/a%0Ab"})
    'GET /a%0Ab'
    """
    path = scope["raw_path"].decode("ascii", "backslashreplace")
    return f"{scope.get('method', 'WEBSOCKET')} {path[:MAX_PATH_CHARACTERS]}"
