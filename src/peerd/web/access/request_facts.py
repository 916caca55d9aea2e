"""What a request is, as far as its actor depends on it: its path, its peer, its headers and its cookie."""

from __future__ import annotations

import hmac
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from peerd.web_server.app_state import PEER_STATE, ConnectionPeer

SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
SECURE_COOKIE: Final = "__Host-peerd"
"""A browser accepts this prefix only of a cookie that was set over https, by this host, for all paths (RFC 6265bis)."""
PLAIN_COOKIE: Final = "peerd_session"
CSRF_HEADER: Final = "x-csrf-token"


def route_path(scope: Scope) -> str:
    """The path within the app, wherever that is mounted; as Starlette's router takes it.

    >>> route_path({"path": "/peerd/health/live", "root_path": "/peerd"}), route_path({"path": "/peerdx"})
    ('/health/live', '/peerdx')
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if not root or not path.startswith(root):
        return path
    if path == root:
        return ""
    return path[len(root) :] if path[len(root)] == "/" else path


def peer_of(scope: Scope) -> ConnectionPeer:
    """The program that has sent the request; other servers than peerd's own tell of no proxy."""
    peer = scope.get("state", {}).get(PEER_STATE)
    if isinstance(peer, ConnectionPeer):
        return peer
    return ConnectionPeer(address_of(scope), is_proxy=False)


def address_of(scope: Scope) -> str | None:
    """The address that the request comes from; a trusted proxy has said it. None of a unix socket."""
    client = scope.get("client")
    return None if client is None or not client[0] else str(client[0])


def host_of(scope: Scope, headers: Headers) -> str:
    """The host that the request is for: of the Host header, or as a trusted proxy has received it."""
    if peer_of(scope).is_proxy:
        forwarded = headers.getlist("x-forwarded-host")
        if len(forwarded) == 1:
            return forwarded[0].strip()
    return headers.get("host", "")


def cookie_name(scope: Scope) -> str:
    """The name of the session's cookie; another one over https, where a plain one may be another site's."""
    return SECURE_COOKIE if scope.get("scheme") == "https" else PLAIN_COOKIE


def session_of(scope: Scope, headers: Headers) -> str | None:
    """The id of the session that the browser has sent; none if it has sent several."""
    name = cookie_name(scope)
    texts = [part.strip() for header in headers.getlist("cookie") for part in header.split(";")]
    mine = [text for text in texts if text.startswith(f"{name}=")]
    if len(mine) != 1:
        return None
    try:
        parsed = SimpleCookie(mine[0])
    except CookieError:
        return None
    return parsed[name].value if name in parsed else None


def csrf_token(session_id: str) -> str:
    """The token that goes with a session: made of its id, which only its browser has, so it needs no place."""
    return hmac.digest(session_id.encode(), b"peerd csrf", sha256).hex()


def has_csrf_token(headers: Headers, session_id: str) -> bool:
    """Whether a request has the token of its session."""
    given = headers.getlist(CSRF_HEADER)
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), csrf_token(session_id).encode())
