"""Accepts connections of queue clients on listening sockets, and drains them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from peerd.gateway.connection import GatewayConnection, Session
from peerd.gateway.process_state import GatewayState
from peerd.gateway.reply_memory import ReplyAccount
from peerd.gateway.sessions.beanstalk import BeanstalkSession
from peerd.gateway.sessions.json import JsonSession
from peerd.runtime.observability import log_messages
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.runtime.socket_listener import SocketListener

CLOSE_WITHIN: Final = 1.0
"""Seconds that connections have to close after they were aborted."""

Send = Callable[[bytes], None]
SESSIONS: Final[Mapping[str, type[BeanstalkSession | JsonSession]]] = {
    "beanstalk": BeanstalkSession,
    "json": JsonSession,
}
"""The sessions of the protocols."""


class GatewayServer:
    """Serves queue clients.

    Args:
        state: shared by all connections.
        events: what happens.
        tls: for TLS on all sockets.
    """

    def __init__(self, state: GatewayState, events: EventBus, tls: ssl.SSLContext | None = None) -> None:
        self.state = state
        self.loop = asyncio.get_running_loop()
        self.is_draining = False
        self._events = events
        self._tls = tls
        self._listeners: list[SocketListener] = []
        self._connections: set[GatewayConnection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept on listening sockets, which the caller closes."""
        for listening_socket in sockets:
            listening_socket.setblocking(False)
            listener = SocketListener(
                listening_socket, lambda: GatewayConnection(self), self._on_accept_error, tls=self._tls
            )
            listener.start()
            self._listeners.append(listener)

    def make_session(self, protocol: str, send: Send, account: ReplyAccount, close: Callable[[], None]) -> Session:
        """The session of a connection that speaks a protocol."""
        return SESSIONS[protocol](self.state, send, account, close)

    # ---------------------------------------------------------------- connections

    def connection_opened(self, connection: GatewayConnection) -> bool:
        """Count a connection; return whether it may stay."""
        self._connections.add(connection)
        self._none_open.clear()
        self.state.connections += 1
        self.state.total_connections += 1
        if self.state.connections > self.state.options.max_connections:
            self._events.emit(log_messages.queue_client_refused(self.state.options.max_connections))
            return False
        return not self.is_draining

    def connection_closed(self, connection: GatewayConnection) -> None:
        """Count a connection less."""
        self._connections.discard(connection)
        self.state.connections -= 1
        if not self._connections:
            self._none_open.set()

    def report_slow(self, unread: int) -> None:
        """Report that a client is disconnected that has left so many bytes unread."""
        self._events.emit(log_messages.slow_queue_client_disconnected(unread))

    def _on_accept_error(self, error: BaseException) -> None:
        self._events.emit(log_messages.accept_failed(describe_exception(error)))

    # ---------------------------------------------------------------- the end

    def stop_accepting(self, *, close_listeners: bool) -> None:
        """Accept no more; ``close_listeners`` if no other process accepts on the sockets."""
        for listener in self._listeners:
            if close_listeners:
                listener.stop_and_close()
            else:
                listener.stop_and_leave()

    async def wait_until_closed(self, within: float | None) -> bool:
        """Wait until the clients have closed all connections; return whether they have in so many seconds."""
        try:
            async with asyncio.timeout(within):
                for listener in self._listeners:
                    await listener.wait_attached()
                await self._none_open.wait()
        except TimeoutError:
            return False
        return True

    async def drain(self, grace: float) -> None:
        """Close each connection as soon as it holds no job; after the grace, all."""
        self.is_draining = True
        for connection in list(self._connections):
            connection.drain()
        if not await self.wait_until_closed(grace):
            for connection in list(self._connections):
                connection.abort()
            await self.wait_until_closed(CLOSE_WITHIN)
