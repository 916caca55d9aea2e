"""Requests to a server: with limits on time and size, repeated where a repetition is harmless, usable after a fork."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.client import HTTPResponse, IncompleteRead
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from peerd.operate.remote.address import ServerAddress
from peerd.operate.remote.errors import ServerUnreachable, UnexpectedAnswer
from peerd.runtime.concurrency import register_fork_hooks
from peerd.storage.transfer.node_http import NETWORK_ERRORS, NodeHttp, failure_of

MAX_ANSWER: Final = 512 * 1024 * 1024
"""Bytes. A task's body has 64 MiB at the most, and a list of tasks may have many of them."""
MAX_PROBLEM: Final = 64 * 1024
"""Bytes of an answer that is an error."""
BLOCK: Final = 64 * 1024
"""Bytes of an answer that are read at once."""
CONNECT_WITHIN: Final = 10.0
PAUSES: Final = (0.2, 1.0)
"""Seconds before the second and the third try."""
MAX_PAUSE: Final = 5.0
"""Seconds that a server may ask for between two tries."""


class Answer(NamedTuple):
    """The answer to a request; the names of its headers are in lower case."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, response: HTTPResponse, body: bytes) -> Answer:
        """The answer of a response, whose body was read."""
        headers = {name.lower(): value for name, value in response.getheaders()}
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        return cls(response.status, content_type, headers, body)


class ServerConnection(NodeHttp):
    """The connections of a process to a server. Thread-safe; a forked process opens its own.

    Where there is no answer, `ServerUnreachable` is raised.

    Attributes:
        url: scheme, host and port, or the path of a socket.
        prefix: the path of the API.
    """

    connect_timeout = CONNECT_WITHIN
    expects = False
    resends = False

    def __init__(self, address: ServerAddress) -> None:
        super().__init__(_TokenHeaders(address), address.tls())
        self.address = address
        self.url = f"unix:{address.socket}" if address.socket is not None else _origin_of(address.url)
        self.prefix = urlsplit(address.base_url).path
        self._of_parents: list[Any] = []
        register_fork_hooks(self)

    def post(self, path: str, body: bytes, *, repeatable: bool, waits: float = 0.0) -> Answer:
        """Send JSON, and return the answer.

        It is repeated if it was not sent, and, where it is `repeatable`, also if the answer was lost or is 503.

        Args:
            path: below the path of the API.
            body: JSON.
            repeatable: whether a repetition is harmless.
            waits: seconds for which the server waits before it answers, at the most.

        Raises:
            ServerUnreachable: the last try failed, too.
            UnexpectedAnswer: the answer is too large, or leads elsewhere.
        """
        for pause in PAUSES:
            try:
                answer = self._post(path, body, waits)
            except ServerUnreachable as error:
                if error.was_reached and not repeatable:
                    raise
                time.sleep(pause)
            else:
                if answer.status != HTTPStatus.SERVICE_UNAVAILABLE or not repeatable:
                    return answer
                time.sleep(_retry_after(answer, pause))
        return self._post(path, body, waits)

    def _post(self, path: str, body: bytes, waits: float) -> Answer:
        seconds, began = self.address.timeout + waits, time.monotonic()
        target, headers = f"{self.prefix}{path}", {"content-type": "application/json"}
        with self.request("POST", self.url, target, body=body, headers=headers, timeout=seconds) as response:
            self.refuse_redirect(response)
            return self.read(response, seconds, began)

    def read(self, response: HTTPResponse, seconds: float, began: float) -> Answer:
        """The answer of a response, which is whole so many seconds after ``began``."""
        server = self.address.shown
        if response.getheader("content-encoding", "identity") != "identity":
            raise UnexpectedAnswer(server, "it is compressed")
        most = MAX_PROBLEM if response.status >= HTTPStatus.BAD_REQUEST else MAX_ANSWER
        parts, size = [], 0
        for part in self.parts(response, seconds):
            parts.append(part)
            size += len(part)
            if size > most:
                raise UnexpectedAnswer(server, f"it has more than {most} bytes")
            if time.monotonic() > began + seconds:
                raise ServerUnreachable(server, f"no whole answer within {seconds:g} s")
        return Answer.of(response, b"".join(parts))

    def parts(self, response: HTTPResponse, seconds: float) -> Iterator[bytes]:
        """The bytes of a response, as they come: some of them in so many seconds. Raises ServerUnreachable."""
        try:
            while part := response.read1(BLOCK):
                yield part
            if response.length:
                raise IncompleteRead(b"", response.length)
            response.read()  # so that the connection can be used again
        except NETWORK_ERRORS as error:
            raise self.failure(self.url, error, seconds) from error

    def refuse_redirect(self, response: HTTPResponse) -> None:
        """Raise UnexpectedAnswer for an answer that leads elsewhere: the token is for this server only."""
        if response.status < HTTPStatus.OK or HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST:
            target = response.getheader("location", "nowhere")[:200]
            raise UnexpectedAnswer(self.address.shown, f"it leads to {target!r}, which is not followed")

    def before_fork(self) -> None:
        """Called in a process that forks: it keeps its connections."""

    def reset_after_fork(self) -> None:
        """Leave the connections of the parent alone, which are kept because their end would close them."""
        self._of_parents.append(self._idle)
        self._idle, self._lock = defaultdict(list), Lock()

    def failure(
        self, url: str, error: Exception, timeout: float | None = None, *, was_reached: bool = True
    ) -> ServerUnreachable:
        """The error that is raised where the network fails, or the server does not answer in time."""
        within = timeout if was_reached else self.connect_timeout
        is_late = isinstance(error, TimeoutError) and within is not None
        reason = f"no answer within {within:g} s" if is_late else failure_of(error)
        return ServerUnreachable(self.address.shown, reason, was_reached=was_reached)


class _TokenHeaders:
    """The headers of each request, with the token."""

    def __init__(self, address: ServerAddress) -> None:
        self._headers = address.headers()

    def headers(
        self, method: str, url: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> dict[str, str]:
        return self._headers


def _origin_of(url: str) -> str:
    """Scheme, host and port of a URL.

    >>> _origin_of("https://jobs.example:8443/sub/")
    'https://jobs.example:8443'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _retry_after(answer: Answer, pause: float) -> float:
    """The seconds that a server asks for, within bounds.

    >>> _retry_after(Answer(503, "", {"retry-after": "2"}, b""), 0.2)
    2.0
    >>> [_retry_after(Answer(503, "", {"retry-after": text}, b""), 0.2) for text in ("1e9", "nan", "-1", "soon")]
    [5.0, 0.2, 0.2, 0.2]
    """
    try:
        seconds = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return pause
    return min(max(seconds, pause), MAX_PAUSE) if math.isfinite(seconds) else pause
