"""One WebSocket: uvicorn's protocol, with draining."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.protocol import State

from peerd.web_server.connection_tracker import ConnectionTracker

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable, ASGISendEvent, Scope

SERVICE_RESTART: Final = 1012
"""The close code after which clients connect again (registry of RFC 6455)."""

REPLY_WITHIN: Final = 3.0
"""Seconds that a client has for its part of the closing handshake."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket of a client.

    While the process drains, the WebSocket is closed with 1012 when the app waits for the next message and there is
    none: all earlier messages of the client have then been answered. A WebSocket whose app only sends is closed at
    once, and one that is not accepted yet after it is accepted. Closing is a handshake; the connection is not cut.

    A client that does not read is not read from either: the answers to its pings would fill the memory.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, connections: ConnectionTracker
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._connections = connections
        self._application = self.app
        self.app = self._run_app
        self._is_answering = False
        self._closed_by_server = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.connection_closed(self)

    def pause_writing(self) -> None:
        """Pause reading too, because each ping would be answered."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading, unless the app is behind."""
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    def keepalive_timeout(self) -> None:
        """End a connection whose client is gone or does not read, without flushing what is buffered for it."""
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def drain(self) -> None:
        """Close as soon as nothing is being answered."""
        if self._is_open and not self._is_answering and self.queue.empty():
            self._close()

    def abort(self) -> None:
        """Close the connection now, with a close frame if possible."""
        if self._is_open:
            self._close()
        self.transport.close()

    async def receive(self) -> ASGIReceiveEvent:
        if self.queue.empty():
            self._is_answering = False
            if self._connections.draining:
                self.drain()
        message = await super().receive()
        if not self.writable.is_set():
            self.transport.pause_reading()  # `receive` of uvicorn has resumed it
        if message["type"] == "websocket.receive":
            self._is_answering = True
        return message

    async def send(self, message: ASGISendEvent) -> None:
        if self._closed_by_server:
            if message["type"] == "websocket.close":
                return
            raise ClientDisconnected
        await super().send(message)
        if self._connections.draining:
            self.drain()

    @property
    def _is_open(self) -> bool:
        return self.handshake_complete and self.conn.state is State.OPEN and not self.transport.is_closing()

    def _close(self) -> None:
        self._closed_by_server = True
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVICE_RESTART, "reason": ""})
        self.conn.send_close(SERVICE_RESTART)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:  # to receive the client's close frame
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(REPLY_WITHIN, self.transport.close)

    async def _run_app(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        try:
            await self._application(scope, receive, send)
        except ClientDisconnected:
            raise
        except BaseException as error:
            # In many apps a closed connection raises.
            if not (self._closed_by_server or self.disconnected):
                self._connections.emit_failure(scope, error)
            raise
