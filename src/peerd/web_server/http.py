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
from peerd.runtime.process.uncaught_exceptions import words
from peerd.web_server.connection_tracker import Traffic, request_line
from peerd.web_server.websocket import WebSocketProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

BUSY: Final = b"all places for requests are taken; try again\n"
TOO_LARGE: Final = "the request's line and headers are too large"
TRAILERS_TOO_LARGE: Final = "the request's trailers are too large"
HEAD_TOO_SLOW: Final = "the request did not arrive in time"
BODY_TOO_SLOW: Final = "the request's body did not arrive in time"
NOT_ONE_HOST: Final = "the request has no Host header, or more than one"
UNKNOWN_VERSION: Final = "the request's version is neither HTTP/1.0 nor HTTP/1.1"

PIECE: Final = 4096
"""Bytes given to the parser at once. It does not tell where in them a head begins, which is estimated by what came
before; the estimate can be wrong by less than this."""

LEAST_LINE: Final = len("GET  HTTP/1.1\r\n\r\n")
"""Bytes of the shortest request line without its target, and of the empty line after the headers."""


class HttpProtocol(HttpToolsProtocol):
    """A connection of a client.

    While the process drains, each response says `connection: close`, unless more of what the client has sent is still
    to be read or answered: then closing would reset the connection under its answer. A response that has begun already
    cannot say so any more; its connection stays open, idle, and the next one on it does.
    """

    def __init__(self, config: Config, traffic: Traffic) -> None:
        super().__init__(config, traffic.uvicorn, traffic.state)
        self._traffic = traffic
        self._limits = traffic.limits
        self._application = self.app
        self.app = self._answer
        self.ws_protocol_class = cast("Any", partial(WebSocketProtocol, traffic=traffic))
        self.timeout_keep_alive = cast("int", traffic.limits.keep_alive)  # a float to the loop, which takes it
        self._head_began = False
        self._head_bytes = 0
        """Bytes of the head as far as it has been parsed."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._between = 0
        """Bytes in a row that neither completed a head nor were body: an unfinished head, trailers, sizes of chunks."""
        self._accounted = 0
        """Bytes of the piece that is being parsed that were body, or of heads that are complete."""
        self._body_timer: asyncio.TimerHandle | None = None
        self._body_bytes = 0
        """Bytes of a body since its timer was set."""
        self._body_was_held = False
        """Whether, since then, it was not for the client to send."""
        self._refusal: tuple[int, str] | None = None
        """Status and text for what the parser is just being told to refuse."""
        self._ignores = False
        """Whether what still comes is not read: something was refused, or the connection is not ours any more."""

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin; a client that never asks for anything is not kept."""
        super().connection_made(transport)
        self._wait_for_a_head(self._limits.head_timeout)
        self._traffic.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting_for_a_head()
        self._stop_waiting_for_a_body()
        super().connection_lost(exc)
        self._traffic.closed(self)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over."""
        super().handle_websocket_upgrade()
        self._ignores = True
        self._traffic.closed(self)

    def drain(self) -> None:
        """Give a connection that has not said anything yet the time of an idle one; all else goes on as it is."""
        if self._request is None and not self._head_began:
            self._stop_waiting_for_a_head()
            self._wait_for_a_head(self._limits.keep_alive)

    def abort(self) -> None:
        """End it now."""
        self.transport.abort()

    # ---------------------------------------------------------------- what a client sends

    def data_received(self, data: bytes) -> None:
        """Read; what is neither a whole head nor belongs to a request that runs must not go on for ever."""
        for begin in range(0, len(data), PIECE):
            if self._ignores or self.transport.is_closing():
                return
            self._parse(data[begin : begin + PIECE])
        if self._ignores or self.transport.is_closing():
            return
        at_rest = self._request is None or self._request.response_complete
        if at_rest and self.timeout_keep_alive_task is None and self._head_timer is None:
            self._wait_for_a_head(self._limits.head_timeout)
        if self._is_receiving_a_body and self._body_timer is None:
            self._wait_for_a_body()

    def _parse(self, piece: bytes) -> None:
        self._accounted = 0
        super().data_received(piece)
        if not self._accounted:
            self._between += len(piece)
        elif self._head_began:
            self._between = max(0, len(piece) - self._accounted)
        else:
            self._between = 0
        if self._between > self._limits.head_bytes and not (self._ignores or self.transport.is_closing()):
            self._refuse(431, TRAILERS_TOO_LARGE if self._is_receiving_a_body else TOO_LARGE)

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
        self._accounted += self._head_bytes + len(self.url) + LEAST_LINE
        self._head_began = False
        self._stop_waiting_for_a_head()
        self._refusal = self._wrong_with_the_head()
        if self._refusal is not None:
            raise HeadRefused
        super().on_headers_complete()

    def _wrong_with_the_head(self) -> tuple[int, str] | None:
        """Status and text of the refusal, if there is one (RFC 9112, 3.2: one Host, which HTTP/1.0 may leave out)."""
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if self._head_bytes + len(self.url) > self._limits.head_bytes:
            return 431, TOO_LARGE
        if version not in {"1.0", "1.1"}:
            return 400, UNKNOWN_VERSION
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            return 400, NOT_ONE_HOST
        return None

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        super().on_body(body)
        self._accounted += len(body)
        self._body_bytes += len(body)
        self._body_was_held |= self.flow.read_paused

    def on_message_complete(self) -> None:
        """End the body."""
        super().on_message_complete()
        self._between = 0
        self._stop_waiting_for_a_body()

    def send_400_response(self, msg: str) -> None:
        """Refuse what has arrived, and close."""
        self._refuse(*(self._refusal or (400, msg)))

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if no upgrade had been asked for, and close: what comes after may be of the other protocol."""
        super()._unsupported_upgrade_warning()
        self._ignores = True
        self.cycle.keep_alive = False

    def _refuse(self, status: int, text: str) -> None:
        """Answer so and close; what an earlier request is owed comes first, and then nothing else is answered."""
        request = self._request
        if request is None or request.response_complete:
            self._answer_and_close(status, text)
        elif not request.more_body:
            self._ignores = True
            request.keep_alive = False
        elif request.response_started or self.pipeline:
            self.transport.close()
        else:
            self._answer_and_close(status, text)

    def _answer_and_close(self, status: int, text: str) -> None:
        head = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + text.encode())
        self.transport.close()

    # ---------------------------------------------------------------- time for a head, and for a body

    def _wait_for_a_head(self, seconds: float) -> None:
        self._head_timer = self.loop.call_later(seconds, self._give_up_on_the_head)

    def _stop_waiting_for_a_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up_on_the_head(self) -> None:
        if self.transport.is_closing():
            return
        if self._head_began:
            self._refuse(408, HEAD_TOO_SLOW)
        else:
            self.transport.close()

    @property
    def _is_receiving_a_body(self) -> bool:
        """Whether more of the latest request is to come, its trailers included, and somebody waits for it."""
        return self._request is not None and self._request.more_body and not self._request.response_complete

    @property
    def _body_is_held(self) -> bool:
        """Whether it is not for the client to send: the app does not read, has not asked yet, or has another first."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue or bool(self.pipeline)

    def _wait_for_a_body(self) -> None:
        self._body_bytes = 0
        self._body_was_held = self._body_is_held
        self._body_timer = self.loop.call_later(self._limits.body_timeout, self._judge_the_body)

    def _stop_waiting_for_a_body(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _judge_the_body(self) -> None:
        """Go on if enough has come since the timer was set, or the client was held up; else refuse the request."""
        self._body_timer = None
        if self.transport.is_closing() or not self._is_receiving_a_body:
            return
        least = max(1.0, self._limits.body_rate * self._limits.body_timeout)
        if self._body_bytes >= least or self._body_was_held or self._body_is_held:
            self._wait_for_a_body()
        else:
            self._refuse(408, BODY_TOO_SLOW)

    # ---------------------------------------------------------------- the answer

    async def _answer(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Call the app; or, when too many requests are at work, say so in its place."""
        most = self._limits.concurrency
        application = self._application if most is None or self._traffic.in_flight <= most else _busy
        began = time.monotonic()
        status = 500

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if (self._traffic.draining or self._ignores) and self._is_the_last_request:
                    message = _with_connection_close(message)
            await send(message)

        try:
            await application(scope, receive, cast("ASGISendCallable", watched))
        except BaseException as error:
            self._traffic.events.emit(
                events.RequestFailed(
                    what=request_line(scope),
                    error="not answered within the grace" if self._traffic.out_of_time else words(error),
                    traceback="".join(traceback.format_exception(error)),
                )
            )
            raise  # uvicorn answers 500, or cuts off what has begun
        finally:
            if self._traffic.access_log:
                seconds = time.monotonic() - began
                client = self.client[0] if self.client else ""
                fact = events.RequestAnswered(what=request_line(scope), status=status, seconds=seconds, client=client)
                self._traffic.events.emit(fact)

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The latest; there is none before the first, whatever uvicorn's types say."""
        return self.cycle

    @property
    def _is_the_last_request(self) -> bool:
        """Whether nothing else that the client has sent on this connection waits to be answered, or to be read."""
        return not self.pipeline and not self.cycle.more_body


class HeadRefused(Exception):
    """The line and headers of a request are not accepted; it ends their parsing."""


def _with_connection_close(message: Any) -> Any:
    others = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
    return {**message, "headers": [*others, (b"connection", b"close")]}


async def _busy(_: Scope, __: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": BUSY, "more_body": False})
