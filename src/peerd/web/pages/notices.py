"""A sentence about what an action has done, which the next page shows once.

It is in a cookie, because the next page may come from another process.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peerd.web.pages.url_query import safe_path

COOKIE: Final = "peerd_notice"
SEPARATOR: Final = "/"
"""Between the text and the address, which are percent-encoded."""
MAX_VALUE: Final = 3_500
"""Characters: a browser keeps 4096 bytes of a cookie."""
MAX_TEXT: Final = 500
"""Characters; one may be twelve of the cookie."""
MAX_AGE: Final = 60
"""Seconds in which the next page comes."""


class Notice(msgspec.Struct, frozen=True):
    """What the next page shows: a text, and the address of the action that takes back what was done."""

    text: str
    undo: str | None = None


def leave_notice(response: Response, text: str, undo: str | None = None) -> None:
    """Let the next page show a text, and a way to undo."""
    parts = [text[:MAX_TEXT], *([] if undo is None or len(undo) > MAX_TEXT else [undo])]
    value = SEPARATOR.join(quote(part, safe="") for part in parts)
    if len(value) > MAX_VALUE:
        value = quote(text, safe="")[:MAX_VALUE]
    response.set_cookie(COOKIE, value, max_age=MAX_AGE, path="/", httponly=True, samesite="strict")


def notice_of(request: Request) -> Notice | None:
    """What the page before has left. A browser may send anything: an address that leads elsewhere is left out."""
    value = request.cookies.get(COOKIE)
    if value is None:
        return None
    text, _, undo = value[:MAX_VALUE].partition(SEPARATOR)
    return Notice(unquote(text, errors="replace"), safe_path(unquote(undo, errors="replace")))


def clear_notice(request: Request, response: Response) -> None:
    """Show it once."""
    if COOKIE in request.cookies:
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
