"""One HTTP connection: uvicorn's protocol, with limits on what a client may send, with draining, and with ranges of
files that the kernel sends.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from peerd.runtime.observability import events
from peerd.web_server.app_state import PEER_STATE, ConnectionPeer
from peerd.web_server.connection_tracker import ConnectionTracker, request_line
from peerd.web_server.websocket import WebSocketProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope


ZERO_COPY: Final = "http.response.zerocopysend"
"""The ASGI extension for ranges of files as bodies of responses, sent by the kernel."""
BUSY_TEXT: Final = b"too many requests at once; try again\n"
ENDING_TEXT: Final = b"the process ends; try again\n"
TOO_LARGE: Final = "the request's line and headers are too large"
TRAILERS_TOO_LARGE: Final = "the request's trailers are too large"
HEAD_TOO_SLOW: Final = "the request did not arrive in time"
BODY_TOO_SLOW: Final = "the request's body did not arrive in time"
BAD_HOST: Final = "the request has no Host header, or more than one"
UNKNOWN_VERSION: Final = "the request's version is neither HTTP/1.0 nor HTTP/1.1"
PARSE_BLOCK: Final = 4096
"""Bytes given to the parser at once. The parser does not report where in them a head begins; that is estimated from the
bytes before it, with an error of less than this."""
SMALL_READ: Final = 256 * 1024
"""Bytes that are read from a socket at once: as asyncio has it."""
LARGE_READ: Final = 1024 * 1024
"""In a body of so many bytes or more."""
MIN_REQUEST_LINE: Final = len("GET  HTTP/1.1\r\n\r\n")
"""Bytes of the shortest request line without its target, with the empty line after the headers."""


async def send_file_range(cycle: RequestResponseCycle, message: Any) -> None:
    """Send ``count`` bytes of the ``file`` from ``offset``, and end the response unless there is ``more_body``.

    The response has begun, and has a Content-Length. To a client that has gone, nothing is sent, as with other bodies:
    neither this range nor what follows it, although the protocol hears only later that the connection is lost.

    Raises:
        RuntimeError: the app sends more than it has announced, or the file is shorter.
    """
    if cycle.disconnected or cycle.transport.is_closing():  # its response may not have begun for uvicorn
        cycle.disconnected = True
        return
    if not cycle.response_started or cycle.chunked_encoding:
        raise RuntimeError("a file is sent after the start of a response with a content-length")
    count = int(message["count"])
    if count > cycle.expected_content_length:
        raise RuntimeError("the file's range is longer than the content-length")
    if cycle.scope["method"] != "HEAD" and count:
        loop = asyncio.get_running_loop()
        try:
            sent = await loop.sendfile(cycle.transport, message["file"], int(message["offset"]), count)
        except ConnectionError:
            cycle.transport.abort()
            cycle.disconnected = True
            return
        cycle.expected_content_length -= sent
        if sent < count:
            raise RuntimeError(f"the file ends {count - sent} bytes too early")
    if not message.get("more_body", False):
        await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})


class HttpProtocol(HttpToolsProtocol):
    """A connection of a client.

    While the process drains, each response has `connection: close`, unless more bytes or requests of the client are
    still to be read or answered: closing would then reset the connection before the response arrives. A response that
    has already begun cannot have the header; its connection stays open, and the next response on it has the header.
    """

    def __init__(self, config: Config, connections: ConnectionTracker) -> None:
        super().__init__(config, connections.uvicorn, connections.state)
        self._connections = connections
        self._settings = connections.settings
        self._application = self.app
        self.app = self._run_app
        self.ws_protocol_class = cast("Any", partial(WebSocketProtocol, connections=connections))
        self.timeout_keep_alive = cast("int", self._settings.keep_alive)  # a float, which the loop takes
        self._head_began = False
        self._head_bytes = 0
        """Bytes of the head that have been parsed."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._unaccounted_bytes = 0
        """Consecutive bytes that neither completed a head nor were body: unfinished head, trailers, chunk sizes."""
        self._accounted_bytes = 0
        """Bytes of the current block that were body, or belonged to complete heads."""
        self._body_left = 0
        """Bytes of the body that are still to come, where its length was announced: they are parsed in one piece."""
        self._body_timer: asyncio.TimerHandle | None = None
        self._body_bytes = 0
        """Bytes of the body since its timer was set."""
        self._body_was_paused = False
        """Whether, since then, the client could not send."""
        self._refusal: tuple[int, str] | None = None
        """Status and text of the refusal while the parser is being stopped."""
        self._ignores_input = False
        """Whether further input is not read, after a refusal or an upgrade to another protocol."""

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._start_head_timer(self._settings.head_timeout)
        self._connections.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._cancel_body_timer()
        super().connection_lost(exc)
        self._connections.connection_closed(self)

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        self._ignores_input = True
        self._connections.connection_closed(self)

    def drain(self) -> None:
        """Give a connection that has sent nothing yet the time of an idle one; others are not changed."""
        if self._request is None and not self._head_began:
            self._cancel_head_timer()
            self._start_head_timer(self._settings.keep_alive)

    def abort(self) -> None:
        self.transport.abort()

    # ---------------------------------------------------------------- what a client sends

    def data_received(self, data: bytes) -> None:
        """Parse, and start a timer for what is incomplete."""
        begin = 0
        while begin < len(data):
            if self._ignores_input or self.transport.is_closing():
                return
            end = begin + max(PARSE_BLOCK, self._body_left)
            self._parse(data[begin:end])
            begin = end
        if self._ignores_input or self.transport.is_closing():
            return
        is_idle = self._request is None or self._request.response_complete
        if is_idle and self.timeout_keep_alive_task is None and self._head_timer is None:
            self._start_head_timer(self._settings.head_timeout)
        if self._is_receiving_body and self._body_timer is None:
            self._start_body_timer()

    def _parse(self, block: bytes) -> None:
        self._accounted_bytes = 0
        super().data_received(block)
        if not self._accounted_bytes:
            self._unaccounted_bytes += len(block)
        elif self._head_began:
            self._unaccounted_bytes = max(0, len(block) - self._accounted_bytes)
        else:
            self._unaccounted_bytes = 0
        if self._unaccounted_bytes > self._settings.max_head and not (
            self._ignores_input or self.transport.is_closing()
        ):
            self._refuse(431, TRAILERS_TOO_LARGE if self._is_receiving_body else TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_began = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. A trailer is dropped: the app has the headers already, and must not see more among them."""
        if self._head_began:
            super().on_header(name, value)
            self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head cannot be accepted."""
        self._accounted_bytes += self._head_bytes + len(self.url) + MIN_REQUEST_LINE
        self._head_began = False
        self._cancel_head_timer()
        self._refusal = self._head_problem()
        if self._refusal is not None:
            raise HeadRefused
        self._body_left = self._announced_length()
        self._set_read_size()
        super().on_headers_complete()

    def _set_read_size(self) -> None:
        """Read as much of a large body at once as a socket has: each read wakes the application, and is copied."""
        if hasattr(self.transport, "max_size"):  # of asyncio's transport of a socket; other loops have another one
            self.transport.max_size = LARGE_READ if self._body_left >= LARGE_READ else SMALL_READ

    def _announced_length(self) -> int:
        """The Content-Length; the parser has refused a wrong one."""
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    def _head_problem(self) -> tuple[int, str] | None:
        """Status and text of a refusal, if any (RFC 9112, 3.2: exactly one Host, optional in HTTP/1.0)."""
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if self._head_bytes + len(self.url) > self._settings.max_head:
            return 431, TOO_LARGE
        if version not in {"1.0", "1.1"}:
            return 400, UNKNOWN_VERSION
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            return 400, BAD_HOST
        return None

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._accounted_bytes += len(body)
        self._body_bytes += len(body)
        self._body_left = max(0, self._body_left - len(body))
        self._body_was_paused |= self.flow.read_paused

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unaccounted_bytes = 0
        self._body_left = 0
        self._cancel_body_timer()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, msg)))

    def _unsupported_upgrade_warning(self) -> None:
        """Respond without the upgrade, and close: the bytes that follow may be of the other protocol."""
        super()._unsupported_upgrade_warning()
        self._ignores_input = True
        self.cycle.keep_alive = False

    def _refuse(self, status: int, text: str) -> None:
        """Respond with the refusal and close; after an earlier request that still runs, close without it."""
        request = self._request
        if request is None or request.response_complete:
            pass
        elif not request.more_body:
            self._ignores_input = True
            request.keep_alive = False
            return
        elif request.response_started or self.pipeline:
            self.transport.close()
            return
        head = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + text.encode())
        self.transport.close()

    # ---------------------------------------------------------------- time for a head, and for a body

    def _start_head_timer(self, seconds: float) -> None:
        self._head_timer = self.loop.call_later(seconds, self._on_head_timeout)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        if self.transport.is_closing():
            return
        if self._head_began:
            self._refuse(408, HEAD_TOO_SLOW)
        else:
            self.transport.close()

    @property
    def _is_receiving_body(self) -> bool:
        """Whether the latest request is incomplete, its trailers included, and not answered yet."""
        return self._request is not None and self._request.more_body and not self._request.response_complete

    @property
    def _body_is_paused(self) -> bool:
        """Whether the client cannot send: the app does not read, has not sent 100 Continue, or has earlier requests."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue or bool(self.pipeline)

    def _start_body_timer(self) -> None:
        self._body_bytes = 0
        self._body_was_paused = self._body_is_paused
        self._body_timer = self.loop.call_later(self._settings.body_timeout, self._check_body_rate)

    def _cancel_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _check_body_rate(self) -> None:
        """Set the timer again if enough has arrived since, or the client could not send; else refuse the request."""
        self._body_timer = None
        if self.transport.is_closing() or not self._is_receiving_body:
            return
        min_bytes = max(1.0, self._settings.min_body_rate * self._settings.body_timeout)
        if self._body_bytes >= min_bytes or self._body_was_paused or self._body_is_paused:
            self._start_body_timer()
        else:
            self._refuse(408, BODY_TOO_SLOW)

    # ---------------------------------------------------------------- the response

    async def _run_app(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Call the app; emit failures and the access log.

        The response is 503 if too many requests run, or if the grace ends before the app has begun one: the next
        process may answer, and clients know that they can try again.
        """
        limit = self._settings.concurrency
        is_busy = limit is not None and self._connections.in_flight > limit
        application = _respond_busy if is_busy else self._application
        began = time.monotonic()
        status = 500
        address = self.client[0] if self.client else None
        cycle = cast("RequestResponseCycle", cast("Any", send).__self__)
        cast("Any", scope).setdefault("extensions", {})[ZERO_COPY] = {}
        cast("Any", scope)["state"][PEER_STATE] = ConnectionPeer(address, self._connections.proxies.trusts(address))

        async def tracked_send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if (self._connections.draining or self._ignores_input) and self._is_last_request:
                    message = _with_connection_close(message)
            if message["type"] == ZERO_COPY:
                await send_file_range(cycle, message)
            else:
                await send(message)

        try:
            await application(scope, receive, cast("ASGISendCallable", tracked_send))
        except BaseException as error:
            self._connections.emit_failure(scope, error)
            if self._connections.grace_is_over and not cycle.response_started:
                await _respond_unavailable(ENDING_TEXT, cast("ASGISendCallable", tracked_send))
                return
            raise  # uvicorn responds 500, or closes the connection if the response has begun
        finally:
            seconds = time.monotonic() - began
            self._connections.observe(status, seconds)
            if self._settings.access_log:
                client = self.client[0] if self.client else ""
                self._connections.events.emit(
                    events.WebRequestAnswered(what=request_line(scope), status=status, seconds=seconds, client=client)
                )

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The latest request; None before the first, although uvicorn's types do not say so."""
        return self.cycle

    @property
    def _is_last_request(self) -> bool:
        """Whether the client has sent nothing more on this connection that is to be read or answered."""
        return not self.pipeline and not self.cycle.more_body


class HeadRefused(Exception):
    """Ends the parsing of a request whose line and headers are refused."""


def _with_connection_close(message: Any) -> Any:
    others = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
    return {**message, "headers": [*others, (b"connection", b"close")]}


async def _respond_busy(_: Scope, __: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    await _respond_unavailable(BUSY_TEXT, send)


async def _respond_unavailable(text: bytes, send: ASGISendCallable) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": text, "more_body": False})
