"""A proxy before an object store, that refuses requests as one does which has too many.

It speaks HTTP/1.1, and passes the head and the body of requests on as they are, so that signatures stay right.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

ANSWERED_WITHIN: Final = 120.0
FOR_EVER: Final = 10**9
_OF_CONNECTION: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class StoreRequest(msgspec.Struct, frozen=True):
    """Such as PUT, its path with the query, and whether it has If-None-Match."""

    method: str
    target: str
    is_conditional: bool = False


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """As S3 refuses a request, or, without a code, a load balancer before it."""

    status: int = 503
    code: str | None = "SlowDown"
    retry_after: int = 1

    @property
    def body(self) -> bytes:
        if self.code is None:
            return b"<html><body>no server is available</body></html>"
        document = f"<Error><Code>{self.code}</Code><Message>Please reduce your request rate.</Message></Error>"
        return b'<?xml version="1.0" encoding="UTF-8"?>\n' + document.encode()


Choice = Callable[[StoreRequest], bool]


def every_request(_: StoreRequest) -> bool:
    return True


class ThrottlingProxy:
    """The proxy; made by `throttling_proxy`."""

    def __init__(self, target: str) -> None:
        self.refused: list[StoreRequest] = []
        self._refusal = Refusal()
        self._left = 0
        self._refuses: Choice = every_request
        self._lock = threading.Lock()
        parts = urlsplit(target)
        assert parts.hostname is not None
        handler = type("_OfProxy", (_Handler,), {"proxy": self, "address": (parts.hostname, parts.port)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def refuse(self, count: int = FOR_EVER, refusal: Refusal | None = None, *, only: Choice = every_request) -> None:
        """Refuse the next requests; those before are forgotten."""
        with self._lock:
            self._refusal, self._left, self._refuses = refusal or Refusal(), count, only
            self.refused.clear()

    def pass_all(self) -> None:
        with self._lock:
            self._left = 0

    def refusal_of(self, request: StoreRequest) -> Refusal | None:
        with self._lock:
            if self._left and self._refuses(request):
                self._left -= 1
                self.refused.append(request)
                return self._refusal
        return None

    @contextmanager
    def serving(self) -> Iterator[ThrottlingProxy]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="throttling-proxy")
        thread.start()
        try:
            yield self
        finally:
            self.pass_all()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: ThrottlingProxy
    address: tuple[str, int]

    def setup(self) -> None:
        super().setup()
        self.store = http.client.HTTPConnection(*self.address, timeout=ANSWERED_WITHIN)

    def finish(self) -> None:
        self.store.close()
        with contextlib.suppress(OSError):
            super().finish()

    def _exchange(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        refusal = self.proxy.refusal_of(StoreRequest(self.command, self.path, "if-none-match" in self.headers))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if refusal is not None:
                kind, pause = "application/xml" if refusal.code else "text/html", str(refusal.retry_after)
                self._answer(refusal.status, {"content-type": kind, "retry-after": pause}, refusal.body)
                return
            self.store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                self.store.putheader(name, value)
            self.store.endheaders(body)
            response = self.store.getresponse()
            data = response.read()
            headers = {name: value for name, value in response.getheaders() if name.lower() not in _OF_CONNECTION}
            length = response.getheader("content-length") if self.command == "HEAD" else None
            self._answer(response.status, headers, data, length)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _exchange  # noqa: N815 - the names of http.server

    def _answer(self, status: int, headers: dict[str, str], data: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


def throttling_proxy(target: str) -> AbstractContextManager[ThrottlingProxy]:
    return ThrottlingProxy(target).serving()
