"""Requests to the servers of nodes, and to the server of a client, over connections that stay open.

The standard library's client, because it reads bodies into memory that is reused. Redirects are not followed, proxies
of the environment are not used, and addresses come from the catalogue.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from threading import Lock
from typing import Final, Protocol
from urllib.parse import urlsplit

from peerd.domain.errors import PeerdError
from peerd.storage.transfer.errors import SourceFailed

CONNECT_TIMEOUT: Final = 5.0
BODY_TIMEOUT: Final = 5.0
"""Seconds until a node asks for the body of a put: one that stands still accepts connections, and takes no put."""
READ_TIMEOUT: Final = 30.0
"""Seconds in which at least some bytes arrive."""
PUT_TIMEOUT: Final = 600.0
"""Seconds for the response to a put after its last byte: the content is made durable, perhaps on several nodes."""
MAX_IDLE: Final = 32
"""Connections to one node that are kept."""
KEPT_FOR: Final = 4.0
"""Seconds that an idle connection is kept: less than a server of peerd keeps it."""
NETWORK_ERRORS: Final = (OSError, http.client.HTTPException)


class RequestSigner(Protocol):
    """Makes the headers by which the receiver of a request knows its sender."""

    def headers(
        self, method: str, url: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> dict[str, str]:
        """The headers of a request: of its method, receiver, path and query, other headers, and body."""


class NodeHttp:
    """Connections to other nodes, or to a server; thread-safe.

    Args:
        signer: signs each request.
        tls: how servers of https addresses are verified; None: by the certificates that the system trusts.
    """

    connect_timeout = CONNECT_TIMEOUT
    expects = True
    """Whether the body of a put is sent only when the receiver asks for it, which proxies may not pass on."""
    resends = True
    """Whether a request is sent again whose connection ends without a response: to nodes, all may arrive twice."""

    def __init__(self, signer: RequestSigner, tls: ssl.SSLContext | None = None) -> None:
        self._signer = signer
        self._tls = tls
        self._idle: dict[str, list[tuple[http.client.HTTPConnection, float]]] = defaultdict(list)
        self._lock = Lock()

    @contextmanager
    def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; the response is read within ``with``. An idle connection that has ended is replaced once.

        Args:
            method: such as GET.
            url: of the node: scheme, host and port.
            target: path and query.
            body: all of it.
            headers: beside the signature.
            timeout: seconds in which at least some bytes arrive; None: `READ_TIMEOUT`.

        Raises:
            SourceFailed: the node cannot be reached, or the connection ended.
        """
        connection, is_new = self._take(url)
        given = headers or {}

        def exchange() -> http.client.HTTPResponse:
            connection.sock.settimeout(timeout or READ_TIMEOUT)
            sent = {**given, **self._signer.headers(method, url, target, given, body)}
            return _exchange(connection, method, target, body, sent)

        try:
            try:
                response = exchange()
            except NETWORK_ERRORS:
                if is_new or not self.resends:
                    raise
                connection.close()
                connection = self._open(url)
                response = exchange()  # signed anew: the first may have arrived
            with closing(response):
                yield response
                is_reusable = response.isclosed() and not response.will_close
        except NETWORK_ERRORS as error:
            connection.close()
            raise self.failure(url, error, timeout) from error
        except BaseException:
            connection.close()
            raise
        self._return(url, connection, is_reusable=is_reusable)

    @contextmanager
    def upload(
        self, url: str, target: str, blocks: Iterable[bytes], headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """Put a body that is not in memory, over a connection of its own; the response is read within ``with``.

        A node that refuses the body before it has read all of it closes the connection; its response is read all the
        same. One that does not ask for the body in time gets none of it, so that another node can get all.

        Args:
            url: of the node: scheme, host and port.
            target: path and query.
            blocks: the body; its errors are raised as they are.
            headers: beside the signature; without content-length the body is sent in chunks.

        Raises:
            SourceFailed: the node cannot be reached, or the connection ended without a whole response.
        """
        is_chunked = "content-length" not in headers
        more = {"connection": "close"}
        if is_chunked:
            more["transfer-encoding"] = "chunked"
        if self.expects:
            more["expect"] = "100-continue"
        connection = self.begin("PUT", url, target, [*headers.items(), *more.items()])
        try:
            if self.expects:
                with self._network_of(url):
                    _wait_for_answer(connection.sock)
            self._send_body(url, connection, blocks, is_chunked=is_chunked)
            with self._network_of(url):
                connection.sock.settimeout(PUT_TIMEOUT)
                with closing(connection.getresponse()) as response:
                    yield response
        finally:
            connection.close()

    def begin(
        self, method: str, url: str, target: str, headers: Sequence[tuple[str, str]]
    ) -> http.client.HTTPConnection:
        """Send the head of a request over a connection of its own; the caller sends the body, and closes it.

        Args:
            method: such as PUT.
            url: of the node: scheme, host and port.
            target: path and query.
            headers: all of them beside the signature, with names in lower case; the host may be one of them.

        Raises:
            SourceFailed: the node cannot be reached.
        """
        connection, given = self._open(url), dict(headers)
        try:
            with self._network_of(url):
                connection.putrequest(method, target, skip_host="host" in given, skip_accept_encoding=True)
                for name, value in (*headers, *self._signer.headers(method, url, target, given).items()):
                    connection.putheader(name, value.encode("latin-1"))
                connection.endheaders()
        except BaseException:
            connection.close()
            raise
        return connection

    def failure(
        self, url: str, error: Exception, timeout: float | None = None, *, was_reached: bool = True
    ) -> PeerdError:
        """The error that is raised where the network fails, or the receiver does not answer in time.

        Args:
            url: of the receiver.
            error: what has failed.
            timeout: seconds that were waited for bytes, if they were given.
            was_reached: whether the receiver may have got the request.
        """
        return SourceFailed(url, failure_of(error))

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for connections in self._idle.values():
                for connection, _ in connections:
                    connection.close()
            self._idle.clear()

    def _take(self, url: str) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it is new. An idle one that is old, or has ended, is closed."""
        while True:
            with self._lock:
                if not self._idle[url]:
                    break
                connection, since = self._idle[url].pop()
            if time.monotonic() - since < KEPT_FOR and not _is_readable(connection.sock, 0.0):
                return connection, False
            connection.close()
        return self._open(url), True

    def _tls_context(self) -> ssl.SSLContext:
        """Made once: it reads all certificates that the system trusts."""
        with self._lock:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls

    def _return(self, url: str, connection: http.client.HTTPConnection, *, is_reusable: bool) -> None:
        present = time.monotonic()
        with self._lock:
            idle = self._idle[url]
            while idle and present - idle[0][1] > KEPT_FOR:
                idle.pop(0)[0].close()
            if is_reusable and len(idle) < MAX_IDLE:
                idle.append((connection, present))
                return
        connection.close()

    def _open(self, url: str) -> http.client.HTTPConnection:
        """A new connection. Raises SourceFailed."""
        parts, within = urlsplit(url), self.connect_timeout
        connection: http.client.HTTPConnection
        if parts.scheme == "unix":
            connection = _UnixConnection(parts.path, within)
        elif parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SourceFailed(url, "this is no address of a node")
        elif parts.scheme == "https":
            context = self._tls_context()
            connection = http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=within, context=context)
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=within)
        try:
            connection.connect()
        except NETWORK_ERRORS as error:
            connection.close()
            raise self.failure(url, error, was_reached=False) from error
        connection.sock.settimeout(READ_TIMEOUT)
        return connection

    def _send_body(
        self, url: str, connection: http.client.HTTPConnection, blocks: Iterable[bytes], *, is_chunked: bool
    ) -> None:
        """Send a body, or as much of it as the node reads: its response says why it does not read the rest."""
        last = (b"",) if is_chunked else ()
        for block in chain(blocks, last):
            data = b"%x\r\n%b\r\n" % (len(block), block) if is_chunked else block
            try:
                connection.send(data)
            except (BrokenPipeError, ConnectionResetError):
                return
            except NETWORK_ERRORS as error:
                raise self.failure(url, error) from error

    @contextmanager
    def _network_of(self, url: str) -> Iterator[None]:
        try:
            yield
        except NETWORK_ERRORS as error:
            raise self.failure(url, error) from error


class _UnixConnection(http.client.HTTPConnection):
    """A connection to the unix socket of a server of this machine."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    """The body of a response, or its first bytes if it has more than the limit.

    Args:
        response: is read within its ``with``.
        limit: bytes.

    Raises:
        IncompleteRead: the connection ended before the body did; `HTTPResponse.read` raises it only without a limit.
    """
    data = response.read(limit)
    if len(data) < limit and response.length:
        raise http.client.IncompleteRead(data, response.length)
    return data


def _wait_for_answer(connected: socket.socket) -> None:
    """Wait until a node asks for the body of a put, or refuses it. What it says is read by `getresponse`."""
    if not _is_readable(connected, BODY_TIMEOUT):
        raise TimeoutError


def _is_readable(connected: socket.socket, within: float) -> bool:
    """Whether bytes arrive, or the connection ends, within so many seconds."""
    readable = select.poll()
    readable.register(connected, select.POLLIN)
    return bool(readable.poll(within * 1000))


def _exchange(
    connection: http.client.HTTPConnection, method: str, target: str, body: bytes, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    connection.request(method, target, body or None, dict(headers))
    return connection.getresponse()


def failure_of(error: BaseException) -> str:
    """What has failed, for people."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended within the response"
    text = str(error) or type(error).__name__
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
