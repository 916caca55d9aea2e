"""Logs users in: by name and password, at a limited rate, with work that says nothing about which users there are.

A change of the own password is a login that sets another one: it needs the present password, and has the same limits.
The cookie of a session is httponly, for this host, and for https alone where the request came by https.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from http import HTTPStatus
from typing import Final

import msgspec
from sqlalchemy.engine import Connection
from starlette.requests import Request
from starlette.responses import Response

from peerd.domain.access import RIGHTS_OF, Actor, ActorKind
from peerd.domain.errors import NotPermitted, PeerdError
from peerd.operate import passwords
from peerd.operate.client import AioClient
from peerd.operate.operations import Query
from peerd.store import audit, users
from peerd.store.audit import NewAuditEntry, write_entry
from peerd.store.users import WINDOW, Credentials, count_failure, may_attempt, network_of, record_success
from peerd.web.access.authentication import AppAccess
from peerd.web.access.request_facts import SECURE_COOKIE, cookie_name

AT_ONCE: Final = 2
"""Passwords that a process compares at once: each takes 64 MiB and about 50 ms of a processor."""
MOST_WAITING: Final = 200
"""Logins that wait for that: for 5 s at the most."""
MOST_OF_NETWORK: Final = 20
"""Logins of one address, or a /64 of IPv6, that wait."""
UNKNOWN_USER: Final = "(unknown)"
"""Stands in the log for a name that no user has: it may be a password by mistake."""
SET_PASSWORD: Final = "session.set_password"  # noqa: S105 - an operation of the audit log


class LoginRefused(PeerdError):
    """A login failed, or came too soon. The text is the same for a wrong name and a wrong password."""

    def __init__(self, status: HTTPStatus, code: str, text: str, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        self.retry_after = retry_after
        super().__init__(text)


class LoginRequest(msgspec.Struct, frozen=True):
    """A login: what was typed, where it comes from, and the session that the browser had.

    With a ``new_password``, which the user has from then on, all sessions of the user end.
    """

    name: str
    password: str
    address: str | None
    replaces: str | None
    new_password: str | None = None

    @property
    def operation(self) -> str:
        """The name of a login in the audit log."""
        return "session.open" if self.new_password is None else SET_PASSWORD

    @property
    def failure(self) -> LoginRefused:
        """What a wrong password gets. Whatever has a session is known: 401 would say that it has ended."""
        if self.new_password is None:
            return LoginRefused(
                HTTPStatus.UNAUTHORIZED, "LoginFailed", "the name or the password is wrong; an admin can set another"
            )
        return LoginRefused(HTTPStatus.FORBIDDEN, "WrongPassword", "the current password is wrong")


class LoginService:
    """The logins of a process: a few are compared at once, and each network has a share of the places to wait."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def log_in(self, client: AioClient, request: LoginRequest) -> tuple[str, Actor]:
        """The id of a new session, and its user; raises `LoginRefused`."""
        network = network_of(request.address)
        if self._waiting[network] >= MOST_OF_NETWORK or self._waiting.total() >= MOST_WAITING:
            text = "too many logins at once: try again"
            raise LoginRefused(HTTPStatus.SERVICE_UNAVAILABLE, "TooManyLogins", text, 2)
        self._waiting[network] += 1
        try:
            async with self._turn:
                return await self._attempt(client, request)
        finally:
            self._waiting -= Counter((network,))  # which drops a count of none

    async def _attempt(self, client: AioClient, request: LoginRequest) -> tuple[str, Actor]:
        execute = client.mode.execute
        if not await execute(Query("read", may_attempt, request.name, request.address)):
            text = "too many logins have failed: wait for a quarter of an hour"
            raise LoginRefused(HTTPStatus.TOO_MANY_REQUESTS, "TooManyLogins", text, int(WINDOW))
        credentials = await execute(Query("read", users.find_credentials, request.name))
        new_hash = await asyncio.to_thread(_compare, credentials.password_hash, request)
        session_id = secrets.token_urlsafe(32)
        actor = None
        if new_hash is not None:
            actor = await execute(Query("run", _open, request, credentials, new_hash, session_id))
        if actor is None:
            await execute(Query("run", _record_failure, request))
            raise request.failure
        return session_id, actor


def require_session(actor: Actor) -> None:
    """Check that an actor has logged in by a password, which it may then change; raises `NotPermitted`."""
    if actor.kind is not ActorKind.USER:
        reason = "only a user that has logged in by a password has one; an admin sets others: peerd users password NAME"
        raise NotPermitted(actor.name, SET_PASSWORD, reason)


def _compare(password_hash: str | None, request: LoginRequest) -> str | None:
    if not passwords.matches(password_hash, request.password) or password_hash is None:
        return None
    if request.new_password is not None:
        return passwords.hash_password(request.new_password)
    return passwords.hash_password(request.password) if passwords.needs_rehash(password_hash) else password_hash


def _open(
    connection: Connection, request: LoginRequest, compared: Credentials, new_hash: str, session_id: str
) -> Actor | None:
    """Write the session, unless the user was changed meanwhile."""
    if users.find_user(connection, request.name, lock=True) is None:
        return None
    if users.find_credentials(connection, request.name) != compared or compared.role is None:
        return None
    assert compared.password_hash is not None
    if new_hash != compared.password_hash:
        users.replace_hash(connection, request.name, new_hash, old=compared.password_hash)
    record_success(connection, request.name, request.address)
    if request.new_password is not None:
        users.delete_sessions_of(connection, request.name)
    users.open_session(connection, session_id, request.name, request.address, request.replaces)
    rights = RIGHTS_OF[compared.role]
    actor = Actor(name=request.name, kind=ActorKind.USER, rights=rights, address=request.address)
    write_entry(connection, _entry(request.name, request.address, request.operation))
    return actor


def _record_failure(connection: Connection, request: LoginRequest) -> None:
    count_failure(connection, request.name, request.address)
    is_known = users.find_user(connection, request.name) is not None
    name = request.name if is_known else UNKNOWN_USER
    write_entry(connection, _entry(name, request.address, request.operation, str(request.failure)))


def close_session(connection: Connection, session_id: str, actor: Actor) -> None:
    """End a session, and write that it was ended."""
    users.delete_session(connection, session_id)
    write_entry(connection, _entry(actor.name, actor.address, "session.close"))


def _entry(name: str, address: str | None, operation: str, problem: str | None = None) -> NewAuditEntry:
    return NewAuditEntry(
        actor_kind=ActorKind.USER,
        actor=name,
        address=address,
        way="api",
        operation=operation,
        outcome=audit.DONE if problem is None else audit.REFUSED,
        target_kind="user",
        target=name,
        problem=problem,
    )


# ---------------------------------------------------------------- the cookie of a session


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
