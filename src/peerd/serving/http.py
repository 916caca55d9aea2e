"""One HTTP connection: uvicorn's protocol, with limits on what a client may send, and our way to drain."""

from __future__ import annotations

import asyncio
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from peerd.runtime import events
from peerd.runtime.faults import words
from peerd.serving.traffic import Traffic, request_line
from peerd.serving.websocket import WebSocketProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

BUSY: Final = b"all places for requests are taken; try again\n"
TOO_LARGE: Final = "the request's line and headers are too large"


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
        self._head_arriving = 0
        """Bytes that have been read of a head that is not complete; 0 between heads."""
        self._head_began = False
        self._head_bytes = 0
        """Bytes of the head as far as it has been parsed."""
        self._head_timer: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin; a client that never asks for anything is not kept."""
        super().connection_made(transport)
        self._wait_for_a_head(self._limits.head_timeout)
        self._traffic.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting_for_a_head()
        super().connection_lost(exc)
        self._traffic.closed(self)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over."""
        super().handle_websocket_upgrade()
        self._traffic.closed(self)

    def drain(self) -> None:
        """Give a connection that has not said anything yet the time of an idle one; all else goes on as it is."""
        if self._request is None and not self._head_began:
            self._stop_waiting_for_a_head()
            self._wait_for_a_head(self._limits.keep_alive)

    def abort(self) -> None:
        """End it now."""
        self.transport.abort()

    # ---------------------------------------------------------------- the head of a request

    def data_received(self, data: bytes) -> None:
        """Read; what is neither a whole head nor belongs to a request that runs must not go on for ever."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_began:
            self._head_arriving += len(data)
            if self._head_arriving > self._limits.head_bytes:
                self.send_400_response(TOO_LARGE)
                return
        at_rest = self._request is None or self._request.response_complete
        if at_rest and self.timeout_keep_alive_task is None and self._head_timer is None:
            self._wait_for_a_head(self._limits.head_timeout)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_began = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is too large."""
        self._head_began = False
        self._head_arriving = 0
        self._stop_waiting_for_a_head()
        if self._head_bytes + len(self.url) > self._limits.head_bytes:
            raise HeadTooLarge
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what has arrived, and close."""
        status = 400
        if msg is TOO_LARGE or self._head_bytes + len(self.url) > self._limits.head_bytes:
            status, msg = 431, TOO_LARGE
        self._refuse(status, msg)

    def _refuse(self, status: int, text: str) -> None:
        head = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + text.encode())
        self.transport.close()

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
            self._refuse(408, "the request did not arrive in time")
        else:
            self.transport.close()

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
                if self._traffic.draining and self._is_the_last_request:
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


class HeadTooLarge(Exception):
    """The line and headers of a request are larger than they may be."""


def _with_connection_close(message: Any) -> Any:
    others = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
    return {**message, "headers": [*others, (b"connection", b"close")]}


async def _busy(_: Scope, __: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": BUSY, "more_body": False})
