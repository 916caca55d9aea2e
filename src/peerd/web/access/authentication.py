"""Finds the actor of a request: by a token, the site's own login, a trusted proxy, or a session.

Where it looks depends on what the app was created with, or finds in the web process that serves it: its client,
[access], and the site's login.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from peerd.config.settings import AccessSettings
from peerd.domain.access import RIGHTS_OF, Actor, ActorKind
from peerd.domain.errors import InvalidAccess
from peerd.operate.client import AioClient, Client
from peerd.operate.operations import Query
from peerd.operate.users import checked_name
from peerd.store.tokens import find_token, touch_token
from peerd.store.users import find_session, find_user, touch_session
from peerd.web.access.request_facts import SAFE_METHODS, address_of, has_csrf_token, peer_of, session_of
from peerd.web_server.app_state import access_settings

Authenticate = Callable[[Request], Actor | Awaitable[Actor | None] | None]
"""A site's own login: the actor of a request, or None."""
BEARER: Final = {"www-authenticate": "Bearer"}


class AccessRefused(Exception):
    """A request has no actor, or must not be sent like this."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = BEARER if status is HTTPStatus.UNAUTHORIZED else None
        super().__init__(detail)


class Authentication:
    """Finds actors.

    Args:
        settings: [access].
        site: the login of the site that the app is mounted in.
        has_token_in_form: a request that changes something has the token of its session in its body, which the
            page that it is for compares (`peerd.web.pages.forms`).
    """

    def __init__(self, settings: AccessSettings, site: Authenticate | None, *, has_token_in_form: bool = False) -> None:
        self._settings = settings
        self._site = site
        self._has_token_in_form = has_token_in_form

    async def find_actor(self, scope: Scope, client: AioClient) -> Actor:
        """The actor of a request; raises `AccessRefused`."""
        headers = Headers(scope=scope)
        actor = await self._find(scope, headers, client)
        return msgspec.structs.replace(actor, address=address_of(scope))

    async def _find(self, scope: Scope, headers: Headers, client: AioClient) -> Actor:
        token = _bearer_token(headers)
        if token is not None:
            return await _actor_of_token(token, client)
        if self._site is not None:
            return await self._actor_of_site(scope)
        header = self._settings.proxy_user_header
        if header is not None and header in headers and peer_of(scope).is_proxy:
            return await self._actor_of_proxy(headers.getlist(header), client)
        session_id = session_of(scope, headers)
        if session_id is not None:
            return await self._actor_of_session(session_id, scope, headers, client)
        raise _unauthorized("log in, or send a token: Authorization: Bearer peerd_…")

    async def _actor_of_site(self, scope: Scope) -> Actor:
        assert self._site is not None
        request = Request(scope)
        if inspect.iscoroutinefunction(self._site):
            found: Any = await self._site(request)
        else:
            found = await run_in_threadpool(self._site, request)
            found = await found if inspect.isawaitable(found) else found
        if found is None:
            raise _unauthorized("log in to the site, or send a token: Authorization: Bearer peerd_…")
        if not isinstance(found, Actor):
            raise TypeError(f"authenticate returned a {type(found).__name__}, and not an Actor or None")
        return msgspec.structs.replace(found, kind=ActorKind.SITE)

    async def _actor_of_proxy(self, names: list[str], client: AioClient) -> Actor:
        try:
            [given] = names
            name = checked_name(given.encode("latin-1").decode())
        except (ValueError, InvalidAccess):
            raise _unauthorized("the proxy has named no user, or more than one") from None
        user = await client.mode.execute(Query("read", find_user, name))
        role = self._settings.proxy_role if user is None else user.role
        if role is None or (user is not None and user.disabled):
            raise AccessRefused(HTTPStatus.FORBIDDEN, "Forbidden", "this user has no role: an admin adds it")
        return Actor(name=name, kind=ActorKind.PROXY, rights=RIGHTS_OF[role])

    async def _actor_of_session(self, session_id: str, scope: Scope, headers: Headers, client: AioClient) -> Actor:
        idle, age = self._settings.session_idle, self._settings.session_age
        user = await client.mode.execute(Query("read", find_session, session_id, idle=idle, age=age))
        if user is None:
            raise _unauthorized("the session has ended: log in again")
        is_unsafe = scope["method"] not in SAFE_METHODS and not self._has_token_in_form
        if is_unsafe and not has_csrf_token(headers, session_id):
            detail = "send the csrf_token of GET /session in the header X-CSRF-Token"
            raise AccessRefused(HTTPStatus.FORBIDDEN, "CsrfTokenMissing", detail)
        if user.is_due:
            await client.mode.execute(Query("run", touch_session, session_id))
        return Actor(name=user.name, kind=ActorKind.USER, rights=RIGHTS_OF[user.role])


async def _actor_of_token(token: str, client: AioClient) -> Actor:
    presented = await client.mode.execute(Query("read", find_token, token))
    if presented is None:
        raise _unauthorized("this token is unknown, revoked or expired")
    found = presented.token
    if presented.is_due:
        await client.mode.execute(Query("run", touch_token, found.id))
    return Actor(
        name=found.name, kind=ActorKind.TOKEN, rights=found.rights, queues=found.queues, file_scopes=found.file_scopes
    )


def _bearer_token(headers: Headers) -> str | None:
    """The token of a request; other schemes may be of a proxy before the API. Raises `AccessRefused`."""
    given = headers.getlist("authorization")
    if len(given) > 1:
        raise _unauthorized("there is more than one Authorization header")
    scheme, _, token = given[0].partition(" ") if given else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _unauthorized(detail: str) -> AccessRefused:
    return AccessRefused(HTTPStatus.UNAUTHORIZED, "Unauthorized", detail)


# ---------------------------------------------------------------- what the app was created with


class AppAccess:
    """The client, [access] and the site's login of one app.

    Args:
        client: None: the client of the web process.
        settings: None: those of the web process, or the defaults.
        authenticate: the login of the site that the app is mounted in.
    """

    def __init__(
        self, client: Client | None, settings: AccessSettings | None, authenticate: Authenticate | None
    ) -> None:
        self._client = client
        self._settings = settings
        self.authenticate = authenticate

    def settings_of(self, scope: Scope) -> AccessSettings:
        """[access], for a request."""
        return self._settings or access_settings(scope.get("state", {})) or AccessSettings()

    def client_of(self, scope: Scope) -> Client:
        """The client for a request."""
        if self._client is not None:
            return self._client
        process = scope.get("state", {}).get("peerd")
        if process is None:
            raise RuntimeError("no web process of peerd serves this app: give create_app a client")
        client: Client = process.client
        return client
