"""What a request must be, whichever actor it comes from.

The name in the Host header is compared because a page of any site can make a browser send requests to 127.0.0.1 under
that site's name (DNS rebinding). A page of another site can also send requests with the browser's rights; browsers say
so in Sec-Fetch-Site and Origin.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import Scope

from peerd.web.access.request_facts import SAFE_METHODS, host_of

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
