"""Forms: their bodies, read within a bound and accepted only with the token of the page that showed the form; notices.

A notice is a sentence about what an action has done, which the next page shows once. It is in a cookie, because the
next page may come from another process.
"""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peerd.web.access.authentication import AccessRefused
from peerd.web.access.request_facts import csrf_token, session_of
from peerd.web.pages.addresses import safe_path

CSRF_FIELD: Final = "csrf_token"
BACK: Final = "back"
"""The field with the page to go to afterwards."""
MAX_BODY: Final = 2 * 1024 * 1024
"""Bytes: a task's body may have a megabyte, and percent-encoding makes text longer."""
MAX_FIELDS: Final = 2_000
"""A selection of a thousand tasks, and more."""
FORM: Final = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form, in their order, without the token.

    Raises:
        AccessRefused: it is no form, or too large; or the token of the session is missing or wrong.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise AccessRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "FormRefused", f"a form is sent as {FORM}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise AccessRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "FormRefused", "the form is larger than 2 MB")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise AccessRefused(
            HTTPStatus.BAD_REQUEST, "FormRefused", "the form is not UTF-8, or has too many fields"
        ) from None
    _require_csrf_token(request, [value for name, value in fields if name == CSRF_FIELD])
    return [(name, value) for name, value in fields if name != CSRF_FIELD]


def form_token(request: Request) -> str:
    """The token for the forms of a page; empty where no session is: the origin of a request is compared there."""
    session_id = session_of(request.scope, request.headers)
    return "" if session_id is None else csrf_token(session_id)


def _require_csrf_token(request: Request, given: list[str]) -> None:
    expected = form_token(request)
    if expected and not (len(given) == 1 and hmac.compare_digest(given[0].encode(), expected.encode())):
        detail = "this form is of another session: go back, load the page again, and send it then"
        raise AccessRefused(HTTPStatus.FORBIDDEN, "CsrfTokenMissing", detail)


# ---------------------------------------------------------------- what a form has done


NOTICE_COOKIE: Final = "peerd_notice"
SEPARATOR: Final = "/"
"""Between the text and the address, which are percent-encoded."""
MAX_VALUE: Final = 3_500
"""Characters: a browser keeps 4096 bytes of a cookie."""
MAX_TEXT: Final = 500
"""Characters; one may be twelve of the cookie."""
NOTICE_MAX_AGE: Final = 60
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
    response.set_cookie(NOTICE_COOKIE, value, max_age=NOTICE_MAX_AGE, path="/", httponly=True, samesite="strict")


def notice_of(request: Request) -> Notice | None:
    """What the page before has left. A browser may send anything: an address that leads elsewhere is left out."""
    value = request.cookies.get(NOTICE_COOKIE)
    if value is None:
        return None
    text, _, undo = value[:MAX_VALUE].partition(SEPARATOR)
    return Notice(unquote(text, errors="replace"), safe_path(unquote(undo, errors="replace")))


def clear_notice(request: Request, response: Response) -> None:
    """Show it once."""
    if NOTICE_COOKIE in request.cookies:
        response.delete_cookie(NOTICE_COOKIE, path="/", httponly=True, samesite="strict")
