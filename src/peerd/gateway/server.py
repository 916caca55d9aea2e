"""Connections of queue clients: they are accepted, read within limits, and closed; a server drains them.

Both protocols may share a port, because clients speak first: JSON begins with a brace or a bracket, a command of
beanstalkd with a letter.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from peerd.gateway.beanstalk.session import BeanstalkSession
from peerd.gateway.gateway import Gateway
from peerd.gateway.json.session import JsonSession
from peerd.gateway.reply_memory import FAIR_SHARE, ReplyAccount
from peerd.gateway.session import Session
from peerd.runtime.observability import log_messages
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.runtime.socket_listener import SocketListener

MIN_BODY_RATE: Final = 500
"""Bytes per second of a job, over each body_timeout (Apache's default MinRate)."""
JSON_BEGINNINGS: Final = b'{["'
CLOSE_WITHIN: Final = 1.0
"""Seconds that connections have to close after they were aborted."""


class GatewayConnection(asyncio.Protocol):
    """A connection of a queue client."""

    def __init__(self, server: GatewayServer) -> None:
        self._server = server
        self._gateway: Gateway = server.gateway
        self._loop = server.loop
        self._session: Session | None = None
        self._output: list[bytes] = []
        self._counted = 0
        """Bytes that are counted as buffered by this connection."""
        self._received = 0
        """Bytes since the timer was set."""
        self._timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_closing = False

    # ---------------------------------------------------------------- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=1, low=0)  # what the system does not take is unread
        self.account = ReplyAccount(self._gateway.reply_memory, transport, self._go_on, self._end_slow)
        if not self._server.connection_opened(self):
            transport.abort()
            return
        settings = self._gateway.settings
        if settings.token is not None:
            self._token_timer = self._loop.call_later(settings.head_timeout, self._close_unless_authorized)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        session = self._session
        if session is None:
            session = self._session = self._begin_session(data)
        self._received += len(data)
        session.receive(data)
        if session.buffered or self._counted or self._timer is not None:
            self._check_buffer(session)

    def eof_received(self) -> bool:
        if self._session is None:
            return False
        self._is_closing = True
        self._session.end_of_input()
        return not self._session.is_answered or bool(self._output)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._token_timer is not None:
            self._token_timer.cancel()
        self._gateway.held_up.pop(self.read_on, None)
        self._count_buffered(0)
        self.account.close()
        if self._session is not None:
            self._session.closed()
        self._server.connection_closed(self)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.is_suspended = True

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.is_suspended = False
            self.account.count_unread()
            self._go_on()

    def _go_on(self) -> None:
        """Execute what had to wait until replies were sent, or for memory."""
        if self._session is not None and not self._transport.is_closing():
            self._session.execute()
            self._check_buffer(self._session)
            if self._is_closing:
                self.close()

    # ---------------------------------------------------------------- the protocol

    def _begin_session(self, data: bytes) -> Session:
        """The session of the protocol that the first byte belongs to."""
        protocols = self._gateway.settings.protocols
        is_json = "json" in protocols and ("beanstalk" not in protocols or data[:1] in JSON_BEGINNINGS)
        return (JsonSession if is_json else BeanstalkSession)(self._gateway, self)

    def send(self, data: bytes) -> None:
        """Send bytes, together with those that follow before the outbox is flushed."""
        if not self._output:
            self._gateway.operations.outbox.add(self._flush)
        self._output.append(data)
        self.account.add(len(data))

    def _flush(self) -> None:
        output, self._output = self._output, []
        data = output[0] if len(output) == 1 else b"".join(output)
        if self._transport.is_closing():
            self.account.add(-len(data))
            return
        self._transport.write(data)
        self.account.count_unread(len(data))
        session = self._session
        if session is None:
            return
        if session.is_behind and not session.is_suspended:
            self._loop.call_soon(self._go_on)
        if self._counted or not self._is_reading:
            self._check_buffer(session)
        if (self._is_closing and session.is_answered and not self._output) or (
            self._server.is_draining and not session.is_busy
        ):
            self._transport.close()

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Close when the commands so far are answered."""
        self._is_closing = True
        if not self._output and (self._session is None or self._session.is_answered):
            self._transport.close()

    def drain(self) -> None:
        """Close as soon as no job is reserved and no command is being executed."""
        if self._session is None or not (self._session.is_busy or self._output):
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _end_slow(self) -> None:
        self._server.report_slow(self.account.unread_bytes)
        self._transport.abort()
        self.account.close()

    # ---------------------------------------------------------------- limits

    def _check_buffer(self, session: Session) -> None:
        """Stop reading while too much is buffered; give an unfinished command its time."""
        buffered = session.buffered
        self._count_buffered(buffered)
        settings, gateway = self._gateway.settings, self._gateway
        is_held_up = gateway.buffered > settings.max_buffered_total and buffered > FAIR_SHARE
        if is_held_up:
            gateway.held_up[self.read_on] = None
        elif gateway.held_up:
            gateway.held_up.pop(self.read_on, None)
        is_full = buffered > settings.max_buffered_bytes or is_held_up
        if is_full is self._is_reading and not self._transport.is_closing():
            self._is_reading = not is_full
            if is_full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if session.unfinished is not None:
            if self._timer is None:
                self._start_timer(session)
        else:
            self._stop_timer()

    def _count_buffered(self, buffered: int) -> None:
        gateway = self._gateway
        gateway.buffered += buffered - self._counted
        self._counted = buffered
        if gateway.held_up and gateway.buffered <= gateway.settings.max_buffered_total:
            held_up, gateway.held_up = gateway.held_up, {}
            for read_on in held_up:
                self._loop.call_soon(read_on)

    def read_on(self) -> None:
        """Read again, if there is room still."""
        if self._session is not None and not self._transport.is_closing():
            self._stop_timer()  # what did not arrive meanwhile is not the client's fault
            self._check_buffer(self._session)

    def _start_timer(self, session: Session) -> None:
        self._received = 0
        settings = self._gateway.settings
        seconds = settings.body_timeout if session.unfinished == "body" else settings.head_timeout
        self._timer = self._loop.call_later(seconds, self._on_timer, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_unless_authorized(self) -> None:
        """Close the connection of a client that has not shown its token: it would be one less for the others."""
        if self._session is None or not self._session.is_authorized:
            self.abort()

    def _on_timer(self, seconds: float) -> None:
        """Close a connection whose command does not arrive; a job that arrives quickly enough gets more time."""
        self._timer = None
        session = self._session
        if session is None:
            return
        is_arriving = session.unfinished == "body" and self._received >= MIN_BODY_RATE * seconds
        if is_arriving or self.read_on in self._gateway.held_up:
            self._start_timer(session)
        elif session.is_answered:
            self.abort()
        else:
            self._start_timer(session)  # the commands before it are still being executed


class GatewayServer:
    """Serves queue clients.

    Args:
        gateway: of the process.
        events: what happens.
        tls: for TLS on all sockets.
    """

    def __init__(self, gateway: Gateway, events: EventBus, tls: ssl.SSLContext | None = None) -> None:
        self.gateway = gateway
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

    # ---------------------------------------------------------------- connections

    def connection_opened(self, connection: GatewayConnection) -> bool:
        """Count a connection; return whether it may stay."""
        self._connections.add(connection)
        self._none_open.clear()
        self.gateway.connections += 1
        self.gateway.total_connections += 1
        if self.gateway.connections > self.gateway.settings.max_connections:
            self._events.emit(log_messages.queue_client_refused(self.gateway.settings.max_connections))
            return False
        return not self.is_draining

    def connection_closed(self, connection: GatewayConnection) -> None:
        """Count a connection less."""
        self._connections.discard(connection)
        self.gateway.connections -= 1
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
