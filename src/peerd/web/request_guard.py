"""What a request must be before any route sees it, and the headers that every answer has.

Without a login, the API serves the machine that it runs on: the peer and the name in the Host header are its own, and
no proxy has forwarded the request. The name is compared because a page of any site can make a browser send requests to
127.0.0.1 under that site's name (DNS rebinding). A page of another site can also send requests with the browser's
rights; browsers say so in Sec-Fetch-Site and Origin.
"""

from __future__ import annotations

from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peerd.web.problems import problem_response

SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
SAME_ORIGIN: Final = ("same-origin", "none")
FORWARDING_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
ANSWER_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class RequestGuard:
    """ASGI middleware: refuses requests from elsewhere, and adds the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = refuse(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
        else:
            response = problem_response(HTTPStatus.FORBIDDEN, "Forbidden", refusal)
            await response(scope, receive, send_with_headers)


def refuse(scope: Scope) -> str | None:
    """Why a request is refused; None if it is not."""
    headers = Headers(scope=scope)
    return _refuse_foreign(scope, headers) or (None if scope["method"] in SAFE_METHODS else _refuse_cross_site(headers))


def _refuse_foreign(scope: Scope, headers: Headers) -> str | None:
    peer = scope.get("client")
    if peer is not None and peer[0] and not is_loopback(peer[0]):  # a unix socket has no peer
        return "without a login, requests come from this machine only"
    if any(name in headers for name in FORWARDING_HEADERS):
        return "a proxy has forwarded this request, and without a login requests come from this machine only"
    if not is_loopback(_host_name(headers.get("host", ""))):
        return "the name in the Host header is not this machine's: use 127.0.0.1 or localhost"
    return None


def _refuse_cross_site(headers: Headers) -> str | None:
    if headers.get("sec-fetch-site", "none") not in SAME_ORIGIN:
        return "a page of another site has sent this request"
    host = headers.get("host", "")
    if headers.get("origin") not in {None, f"http://{host}", f"https://{host}"}:
        return "a page of another origin has sent this request"
    return None


def is_loopback(host: str) -> bool:
    """Whether an address or a name is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("localhost.evil.example")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _host_name(header: str) -> str:
    """The name of a Host header, without its port.

    >>> _host_name("[::1]:8080"), _host_name("localhost:8080"), _host_name("127.0.0.1")
    ('::1', 'localhost', '127.0.0.1')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
