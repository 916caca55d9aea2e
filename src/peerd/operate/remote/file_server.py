"""Requests about contents to a server, and the errors that its answers stand for."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from peerd.operate.remote.address import ServerAddress
from peerd.operate.remote.errors import UnexpectedAnswer
from peerd.operate.remote.http import MAX_PROBLEM, Answer
from peerd.storage.transfer.node_http import NodeHttp, read_body

if TYPE_CHECKING:
    from peerd.operate.remote.modes import ServerMode

T = TypeVar("T")
PAUSES: Final = (1.0, 4.0, 15.0)
"""Seconds before each further try: in their sum a web process that was killed is replaced."""
RETRIED: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""Responses after which a request is tried again; the last two are those of proxies."""
MAX_JSON: Final = 1024 * 1024
"""Bytes of a response about a file or its uploads."""


class FileServer:
    """A server that relays contents.

    Args:
        mode: of the client.
    """

    def __init__(self, mode: ServerMode) -> None:
        address = mode.address
        self.shown = address.shown
        self.url = f"unix:{address.socket}" if address.socket is not None else _origin_of(address.url)
        tls = address.tls() if self.url.startswith("https:") else None
        self.http = NodeHttp(_TokenHeaders(address), tls, expects=False)
        self._mode = mode
        self._prefix = urlsplit(address.base_url).path

    def target(self, path: str) -> str:
        """The target of a path below that of the API."""
        return f"{self._prefix}{path}"

    def error_of(self, response: HTTPResponse) -> Exception:
        """The error of a response that is none of success."""
        content_type = (response.headers.get("content-type") or "").partition(";")[0].strip().lower()
        answer = Answer(response.status, content_type, dict(response.headers.items()), read_body(response, MAX_PROBLEM))
        return self._mode.error_of(answer)

    def decode(self, response: HTTPResponse, kind: type[T]) -> T:
        """What a response of success says. Raises UnexpectedAnswer."""
        data = read_body(response, MAX_JSON + 1)
        if len(data) > MAX_JSON:
            raise UnexpectedAnswer(self.shown, f"it has more than {MAX_JSON} bytes")
        try:
            return msgspec.json.decode(data, type=kind, strict=False)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UnexpectedAnswer(self.shown, f"what it says of a file cannot be read: {error}") from None


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
