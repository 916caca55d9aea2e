"""The cookie of a session: httponly, for this host, and for https alone where the request came by https."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from peerd.web.access.app_access import AppAccess
from peerd.web.access.request_facts import SECURE_COOKIE, cookie_name


def set_session_cookie(request: Request, response: Response, session_id: str, access: AppAccess) -> None:
    """Let the browser have a session."""
    name = cookie_name(request.scope)
    response.set_cookie(
        name,
        session_id,
        max_age=int(access.settings_of(request.scope).session_age),
        path="/",
        secure=name == SECURE_COOKIE,
        httponly=True,
        samesite="lax",
    )


def remove_session_cookie(request: Request, response: Response) -> None:
    """Let the browser forget it."""
    name = cookie_name(request.scope)
    response.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="lax")
