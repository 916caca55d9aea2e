"""The headers of pages, and the way to the login: what the guard of all requests needs of them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

PAGE_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "media-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # With no-referrer, browsers send forms with `Origin: null`, which is refused as another site's.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
FILE_HEADERS: Final = PAGE_HEADERS | {
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-cache",
}
"""The headers of files that programs have made: opened on their own, they may load and do nothing."""


def login_redirect(scope: Scope) -> Response:
    """To the login, and from there to the page that was asked for."""
    root, query = scope.get("root_path", ""), scope.get("query_string", b"").decode("latin-1")
    wanted = scope["path"].removeprefix(root) or "/"
    address = f"{root}/login?{urlencode({'next': f'{wanted}?{query}' if query else wanted})}"
    return RedirectResponse(address, HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)
