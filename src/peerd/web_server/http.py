"""One HTTP connection: uvicorn's protocol, with limits on what a client may send, and our way to drain."""

from __future__ import annotations

import asyncio
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from peerd.runtime.observability import events
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.web_server.connection_tracker import ConnectionTracker, request_line
from peerd.web_server.websocket import WebSocketProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

BUSY_TEXT: Final = b"all places for requests are taken; try again\n"
TOO_LARGE: Final = "the request's line and headers are too large"
TRAILERS_TOO_LARGE: Final = "the request's trailers are too large"
HEAD_TOO_SLOW: Final = "the request did not arrive in time"
BODY_TOO_SLOW: Final = "the request's body did not arrive in time"
BAD_HOST: Final = "the request has no Host header, or more than one"
UNKNOWN_VERSION: Final = "the request's version is neither HTTP/1.0 nor HTTP/1.1"

PARSE_BLOCK: Final = 4096
"""Bytes given to the parser at once. It does not tell where in them a head begins, which is estimated by what came
before; the estimate can be wrong by less than this."""

MIN_REQUEST_LINE: Final = len("GET  HTTP/1.1\r\n\r\n")
"""Bytes of the shortest request line without its target, and of the empty line after the headers."""


class HttpProtocol(HttpToolsProtocol):
    """A connection of a client.

    While the process drains, each response says `connection: close`, unless more of what the client has sent is still
    to be read or answered: then closing would reset the connection under its answer. A response that has begun already
    cannot say so any more; its connection stays open, idle, and the next one on it does.
    """

    def __init__(self, config: Config, connections: ConnectionTracker) -> None:
        super().__init__(config, connections.uvicorn, connections.state)
        self._connections = connections
        self._limits = connections.limits
        self._application = self.app
        self.app = self._run_app
        self.ws_protocol_class = cast("Any", partial(WebSocketProtocol, connections=connections))
        self.timeout_keep_alive = cast("int", connections.limits.keep_alive)  # a float to the loop, which takes it
        self._head_began = False
        self._head_bytes = 0
        """Bytes of the head as far as it has been parsed."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._unaccounted_bytes = 0
        """Bytes in a row that neither completed a head nor were body: an unfinished head, trailers, sizes of chunks."""
        self._accounted_bytes = 0
        """Bytes of the piece that is being parsed that were body, or of heads that are complete."""
        self._body_timer: asyncio.TimerHandle | None = None
        self._body_bytes = 0
        """Bytes of a body since its timer was set."""
        self._body_was_paused = False
        """Whether, since then, it was not for the client to send."""
        self._refusal: tuple[int, str] | None = None
        """Status and text for what the parser is just being told to refuse."""
        self._ignores_input = False
        """Whether what still comes is not read: something was refused, or the connection is not ours any more."""

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin; a client that never asks for anything is not kept."""
        super().connection_made(transport)
        self._start_head_timer(self._limits.head_timeout)
        self._connections.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._cancel_head_timer()
        self._cancel_body_timer()
        super().connection_lost(exc)
        self._connections.connection_closed(self)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over."""
        super().handle_websocket_upgrade()
        self._ignores_input = True
        self._connections.connection_closed(self)

    def drain(self) -> None:
        """Give a connection that has not said anything yet the time of an idle one; all else goes on as it is."""
        if self._request is None and not self._head_began:
            self._cancel_head_timer()
            self._start_head_timer(self._limits.keep_alive)

    def abort(self) -> None:
        """End it now."""
        self.transport.abort()

    # ---------------------------------------------------------------- what a client sends

    def data_received(self, data: bytes) -> None:
        """Read; what is neither a whole head nor belongs to a request that runs must not go on for ever."""
        for begin in range(0, len(data), PARSE_BLOCK):
            if self._ignores_input or self.transport.is_closing():
                return
            self._parse(data[begin : begin + PARSE_BLOCK])
        if self._ignores_input or self.transport.is_closing():
            return
        is_idle = self._request is None or self._request.response_complete
        if is_idle and self.timeout_keep_alive_task is None and self._head_timer is None:
            self._start_head_timer(self._limits.head_timeout)
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
        if self._unaccounted_bytes > self._limits.head_bytes and not (
            self._ignores_input or self.transport.is_closing()
        ):
            self._refuse(431, TRAILERS_TOO_LARGE if self._is_receiving_body else TOO_LARGE)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_began = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. A trailer is dropped: the app has the headers already, and must not see others among them."""
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
        super().on_headers_complete()

    def _head_problem(self) -> tuple[int, str] | None:
        """Status and text of the refusal, if there is one (RFC 9112, 3.2: one Host, which HTTP/1.0 may leave out)."""
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if self._head_bytes + len(self.url) > self._limits.head_bytes:
            return 431, TOO_LARGE
        if version not in {"1.0", "1.1"}:
            return 400, UNKNOWN_VERSION
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            return 400, BAD_HOST
        return None

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        super().on_body(body)
        self._accounted_bytes += len(body)
        self._body_bytes += len(body)
        self._body_was_paused |= self.flow.read_paused

    def on_message_complete(self) -> None:
        """End the body."""
        super().on_message_complete()
        self._unaccounted_bytes = 0
        self._cancel_body_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse what has arrived, and close."""
        self._refuse(*(self._refusal or (400, msg)))

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if no upgrade had been asked for, and close: what comes after may be of the other protocol."""
        super()._unsupported_upgrade_warning()
        self._ignores_input = True
        self.cycle.keep_alive = False

    def _refuse(self, status: int, text: str) -> None:
        """Answer so and close; what an earlier request is owed comes first, and then nothing else is answered."""
        request = self._request
        if request is None or request.response_complete:
            self._respond_and_close(status, text)
        elif not request.more_body:
            self._ignores_input = True
            request.keep_alive = False
        elif request.response_started or self.pipeline:
            self.transport.close()
        else:
            self._respond_and_close(status, text)

    def _respond_and_close(self, status: int, text: str) -> None:
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
        """Whether more of the latest request is to come, its trailers included, and somebody waits for it."""
        return self._request is not None and self._request.more_body and not self._request.response_complete

    @property
    def _body_is_paused(self) -> bool:
        """Whether it is not for the client to send: the app does not read, has not asked yet, or has another first."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue or bool(self.pipeline)

    def _start_body_timer(self) -> None:
        self._body_bytes = 0
        self._body_was_paused = self._body_is_paused
        self._body_timer = self.loop.call_later(self._limits.body_timeout, self._check_body_rate)

    def _cancel_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _check_body_rate(self) -> None:
        """Go on if enough has come since the timer was set, or the client was held up; else refuse the request."""
        self._body_timer = None
        if self.transport.is_closing() or not self._is_receiving_body:
            return
        min_bytes = max(1.0, self._limits.body_rate * self._limits.body_timeout)
        if self._body_bytes >= min_bytes or self._body_was_paused or self._body_is_paused:
            self._start_body_timer()
        else:
            self._refuse(408, BODY_TOO_SLOW)

    # ---------------------------------------------------------------- the answer

    async def _run_app(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Call the app; or, when too many requests are at work, say so in its place."""
        max_concurrency = self._limits.concurrency
        application = (
            self._application
            if max_concurrency is None or self._connections.in_flight <= max_concurrency
            else _respond_busy
        )
        began = time.monotonic()
        status = 500

        async def tracked_send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if (self._connections.draining or self._ignores_input) and self._is_last_request:
                    message = _with_connection_close(message)
            await send(message)

        try:
            await application(scope, receive, cast("ASGISendCallable", tracked_send))
        except BaseException as error:
            self._connections.events.emit(
                events.WebRequestFailed(
                    what=request_line(scope),
                    error="not answered within the grace"
                    if self._connections.grace_is_over
                    else describe_exception(error),
                    traceback="".join(traceback.format_exception(error)),
                )
            )
            raise  # uvicorn answers 500, or cuts off what has begun
        finally:
            if self._connections.access_log:
                seconds = time.monotonic() - began
                client = self.client[0] if self.client else ""
                event = events.WebRequestAnswered(
                    what=request_line(scope), status=status, seconds=seconds, client=client
                )
                self._connections.events.emit(event)

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The latest; there is none before the first, whatever uvicorn's types say."""
        return self.cycle

    @property
    def _is_last_request(self) -> bool:
        """Whether nothing else that the client has sent on this connection waits to be answered, or to be read."""
        return not self.pipeline and not self.cycle.more_body


class HeadRefused(Exception):
    """The line and headers of a request are not accepted; it ends their parsing."""


def _with_connection_close(message: Any) -> Any:
    others = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
    return {**message, "headers": [*others, (b"connection", b"close")]}


async def _respond_busy(_: Scope, __: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": BUSY_TEXT, "more_body": False})
