"""What a request must be, whichever actor it comes from, and how many bytes of its body are read.

The name in the Host header is compared because a page of any site can make a browser send requests to 127.0.0.1 under
that site's name (DNS rebinding). A page of another site can also send requests with the browser's rights; browsers say
so in Sec-Fetch-Site and Origin.

A larger body is refused before it is read. A body in JSON is parsed and checked on the event loop, so its bound limits
how long other requests wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from peerd.web.access.request_facts import SAFE_METHODS, host_of, route_path

HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
SAME_ORIGIN: Final = ("same-origin", "none")
TOKEN_PARAMETERS: Final = frozenset({"token", "access_token", "bearer"})


def refuse_token_in_query(scope: Scope) -> str | None:
    """Why a request is refused whose address has a token, which logs and histories keep; None if it has none."""
    query = scope.get("query_string", b"").decode("latin-1")
    given = parse_qsl(query, keep_blank_values=True, max_num_fields=None)
    if any(name.lower() in TOKEN_PARAMETERS for name, _ in given):
        return (
            "a token in an address is kept by logs: send it in the header Authorization: Bearer …, and revoke this one"
        )
    return None


def refuse_host(scope: Scope, headers: Headers, allowed: Collection[str]) -> str | None:
    """Why a request is refused that is for another host; None if it is not."""
    if len(headers.getlist("host")) > 1:
        return "there is more than one Host header"
    name = host_name(host_of(scope, headers)).lower()
    if is_loopback(name) or name in allowed:
        return None
    remedy = "use 127.0.0.1 or localhost, or allow it ([access] allowed_hosts)"
    return f"the name in the Host header is not this machine's: {remedy}"


def refuse_cross_site(scope: Scope, headers: Headers) -> str | None:
    """Why a request that changes something is refused; None if no page of another site has sent it."""
    if scope["method"] in SAFE_METHODS:
        return None
    if headers.get("sec-fetch-site", "none") not in SAME_ORIGIN:
        return "a page of another site has sent this request"
    host = host_of(scope, headers)
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


def host_name(header: str) -> str:
    """The name of a Host header, without its port; none of what is no host (RFC 3986, 3.2).

    >>> host_name("[::1]:8080"), host_name("localhost:8080"), host_name("127.0.0.1"), host_name("127.0.0.1:80@evil")
    ('::1', 'localhost', '127.0.0.1', '')
    """
    found = HOST.fullmatch(header)
    return "" if found is None else found["address"] or found["name"]


# ---------------------------------------------------------------- how many bytes of a body are read


WITHOUT_ACTOR: Final = 16 * 1024
"""Bytes: a name and a password of the most characters, each written in the longest way that JSON and forms have."""
OF_ACTOR: Final = 4 * 1024 * 1024
"""Bytes: less than each server takes in a statement by default (`max_allowed_packet` of MariaDB is 16 MiB)."""
STREAMED: Final = ("/api/v1/files/", "/api/v1/uploads/")
"""Contents of files, which are never in memory as a whole."""


class BodyTooLarge(HTTPException):
    """A body has more bytes than its request may have."""

    def __init__(self, most: int) -> None:
        remedy = "send several requests, or keep large data in a file, and its name in the task"
        detail = f"the body of this request has more than {most:,} bytes: {remedy}"
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def most_bytes(scope: Scope, *, has_actor: bool) -> int | None:
    """The bound of a request's body; None: what reads it has its own."""
    if not has_actor:
        return WITHOUT_ACTOR
    path = route_path(scope)
    return OF_ACTOR if path.startswith("/api/") and not path.startswith(STREAMED) else None


def bounded(scope: Scope, receive: Receive, most: int) -> Receive:
    """What receives a body up to a bound; it raises `BodyTooLarge` before it has read more.

    Raises:
        BodyTooLarge: the request announces more.
    """
    announced = Headers(scope=scope).get("content-length", "0")
    if announced.isdigit() and int(announced) > most:
        raise BodyTooLarge(most)
    left = most

    async def receive_within() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLarge(most)
        return message

    return receive_within
