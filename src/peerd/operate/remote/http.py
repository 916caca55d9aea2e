"""Requests to a server: with limits on time and size, repeated where a repetition is harmless, usable after a fork."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, NamedTuple

from peerd.domain.errors import PackageMissing
from peerd.operate.remote.address import ServerAddress
from peerd.operate.remote.errors import InvalidServer, ServerUnreachable, UnexpectedAnswer
from peerd.runtime.concurrency import register_fork_hooks

try:
    import httpx
except ImportError:
    raise PackageMissing("httpx", "remote") from None

MAX_ANSWER: Final = 512 * 1024 * 1024
"""Bytes. A task's body has 64 MiB at the most, and a list of tasks may have many of them."""
MAX_PROBLEM: Final = 64 * 1024
"""Bytes of an answer that is an error."""
CONNECT_WITHIN: Final = 10.0
PAUSES: Final = (0.2, 1.0)
"""Seconds before the second and the third try."""
MAX_PAUSE: Final = 5.0
"""Seconds that a server may ask for between two tries."""
KEEP_ALIVE: Final = 4.0
"""Seconds that an idle connection is kept: less than a server of peerd keeps it."""
CONNECTIONS: Final = 100


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes


class ServerConnection:
    """The connections of a process to a server. Thread-safe; a forked process opens its own."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._tls = address.tls()
        self._of_parents: list[httpx.Client] = []
        self._http: httpx.Client | None = None
        self.reset_after_fork()
        register_fork_hooks(self)

    def post(self, path: str, body: bytes, *, repeatable: bool, waits: float = 0.0) -> Answer:
        """Send JSON, and return the answer.

        It is repeated if it was not sent, and, where it is `repeatable`, also if the answer was lost or is 503.

        Args:
            path: below that of the API.
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
                if not (repeatable or isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)):
                    raise
                time.sleep(pause)
            else:
                if answer.status != HTTPStatus.SERVICE_UNAVAILABLE or not repeatable:
                    return answer
                time.sleep(_retry_after(answer, pause))
        return self._post(path, body, waits)

    def _post(self, path: str, body: bytes, waits: float) -> Answer:
        seconds, began = self.address.timeout + waits, time.monotonic()
        headers = {"content-type": "application/json"}
        timeout = httpx.Timeout(self.address.timeout, connect=CONNECT_WITHIN, read=seconds)
        with self.stream("POST", path, headers=headers, content=body, timeout=timeout) as response:
            self.refuse_redirect(response)
            return Answer(
                response.status_code,
                response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                response.headers,
                self.read(response, seconds, began),
            )

    @contextmanager
    def stream(self, method: str, path: str, *, timeout: httpx.Timeout, **request: Any) -> Iterator[httpx.Response]:
        """A request whose answer is read bit by bit; raises ServerUnreachable for whatever fails meanwhile."""
        url = f"{self.address.base_url}{path}"
        try:
            with self._client().stream(method, url, timeout=timeout, **request) as response:
                yield response
        except httpx.TimeoutException as error:
            seconds = timeout.connect if isinstance(error, httpx.ConnectTimeout) else timeout.read
            raise ServerUnreachable(self.address.shown, f"no answer within {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise ServerUnreachable(self.address.shown, str(error) or type(error).__name__) from error

    def read(self, response: httpx.Response, seconds: float, began: float) -> bytes:
        """The body of an answer, which is whole so many seconds after ``began``."""
        server = self.address.shown
        if response.headers.get("content-encoding", "identity") != "identity":
            raise UnexpectedAnswer(server, "it is compressed")
        most = MAX_PROBLEM if response.is_error else MAX_ANSWER
        parts, size = [], 0
        for part in response.iter_raw():
            parts.append(part)
            size += len(part)
            if size > most:
                raise UnexpectedAnswer(server, f"it has more than {most} bytes")
            if time.monotonic() > began + seconds:
                raise ServerUnreachable(server, f"no whole answer within {seconds:g} s")
        return b"".join(parts)

    def refuse_redirect(self, response: httpx.Response) -> None:
        """Raise UnexpectedAnswer for an answer that leads elsewhere: the token is for this server only."""
        if response.is_redirect or response.is_informational:
            target = response.headers.get("location", "nowhere")[:200]
            raise UnexpectedAnswer(self.address.shown, f"it leads to {target!r}, which is not followed")

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def before_fork(self) -> None:
        """Called in a process that forks: it keeps its connections."""

    def reset_after_fork(self) -> None:
        """Leave the connections of the parent alone, which are kept because their end would close them."""
        self._lock = Lock()
        if self._http is not None:
            self._of_parents.append(self._http)
            self._http = None

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._http is None:
                self._http = self._open()
            return self._http

    def _open(self) -> httpx.Client:
        limits = httpx.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEP_ALIVE)
        transport = httpx.HTTPTransport(
            verify=self._tls, limits=limits, uds=self.address.socket, trust_env=False
        )  # no proxy of the environment gets the token
        try:
            return httpx.Client(
                transport=transport,
                headers=self.address.headers(),
                follow_redirects=False,
                trust_env=False,
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidServer(self.address.shown, str(error)) from None


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
