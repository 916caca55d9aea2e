"""What every request passes before a route sees it: checks, and its actor. Every answer gets headers here.

No route asks for a login by itself, so none can forget to: only the login and the health checks, by their exact paths,
have no actor.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peerd.domain.errors import PeerdError
from peerd.web.access.authentication import AccessRefused, AppAccess, Authentication
from peerd.web.access.request_facts import route_path
from peerd.web.pages.headers import login_redirect
from peerd.web.problems import ANSWER_HEADERS, error_response, http_problem, problem_response
from peerd.web.request_checks import (
    BodyTooLarge,
    bounded,
    most_bytes,
    refuse_cross_site,
    refuse_host,
    refuse_token_in_query,
)

ACTOR: Final = "peerd.actor"
"""The key of the scope that has the actor of a request."""
LOGINS: Final = frozenset({("POST", "/api/v1/session"), ("GET", "/login"), ("HEAD", "/login"), ("POST", "/login")})
PROGRAM_PATHS: Final = ("/api/", "/health/", "/metrics")
"""Below these, programs are answered; all other paths are of pages."""
STATIC: Final = "/static/"
HEALTH: Final = frozenset({"/health/live", "/health/ready"})


class RequestGuard:
    """ASGI middleware: finds the actor of a request, or refuses it; adds the headers.

    Args:
        app: the app behind it.
        access: what the app was created with.
    """

    def __init__(self, app: ASGIApp, access: AppAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._app(scope, receive, send)
            case "http":
                await self._answer(scope, receive, send)
            case _:  # no route is a WebSocket
                await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._admit(scope)
            most = most_bytes(scope, has_actor=ACTOR in scope)
            within = receive if most is None else bounded(scope, receive, most)
        except AccessRefused as refusal:
            if self._leads_to_login(scope, refusal):
                await login_redirect(scope)(scope, receive, send_with_headers)
                return
            answer = problem_response(refusal.status, refusal.code, refusal.detail, headers=refusal.headers)
        except PeerdError as error:
            answer = error_response(error)
        except BodyTooLarge as error:
            answer = http_problem(error)
        else:
            await self._app(scope, within, send_with_headers)
            return
        await answer(scope, receive, send_with_headers)

    def _leads_to_login(self, scope: Scope, refusal: AccessRefused) -> bool:
        """Whether a browser asks for a page without a session, where users log in by a password."""
        return (
            refusal.status is HTTPStatus.UNAUTHORIZED
            and scope["method"] in {"GET", "HEAD"}
            and is_page(route_path(scope))
            and self._access.authenticate is None
            and self._access.settings_of(scope).proxy_user_header is None
        )

    async def _admit(self, scope: Scope) -> None:
        """Let a request in, with its actor; raises `AccessRefused`."""
        headers, settings = Headers(scope=scope), self._access.settings_of(scope)
        in_query = refuse_token_in_query(scope)
        if in_query is not None:
            raise AccessRefused(HTTPStatus.BAD_REQUEST, "TokenInAddress", in_query)
        path, method = route_path(scope), scope["method"]
        if path in HEALTH and method in {"GET", "HEAD"}:
            return
        is_hosted = self._access.authenticate is not None and not settings.allowed_hosts
        host_refusal = None if is_hosted else refuse_host(scope, headers, settings.allowed_hosts)  # else the site's own
        refusal = host_refusal or refuse_cross_site(scope, headers)
        if refusal is not None:
            raise AccessRefused(HTTPStatus.FORBIDDEN, "Forbidden", refusal)
        is_public = (method, path) in LOGINS or (path.startswith(STATIC) and method in {"GET", "HEAD"})
        if not is_public:
            authentication = Authentication(settings, self._access.authenticate, has_token_in_form=is_page(path))
            scope[ACTOR] = await authentication.find_actor(scope, self._access.client_of(scope).aio)


def is_page(path: str) -> bool:
    """Whether a path is one of the pages.

    >>> is_page("/tasks/17"), is_page("/api/v1/tasks/17"), is_page("/metrics")
    (True, False, False)
    """
    return not path.startswith(PROGRAM_PATHS)
