"""Logs users in: by name and password, at a limited rate, with work that says nothing about which users there are."""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import RIGHTS_OF, Actor, ActorKind
from peerd.domain.errors import PeerdError
from peerd.operate import passwords
from peerd.operate.client import AioClient
from peerd.operate.operations import Query
from peerd.store.access import audit, sessions, users
from peerd.store.access.audit import NewAuditEntry, write_entry
from peerd.store.access.login_limits import WINDOW, count_attempt, record_success
from peerd.store.access.users import Credentials

AT_ONCE: Final = 2
"""Passwords that a process compares at once: each takes 64 MiB and about 50 ms of a processor."""
MOST_WAITING: Final = 20
"""Logins that wait for that."""
UNKNOWN_USER: Final = "(unknown)"
"""Stands in the log for a name that no user has: it may be a password by mistake."""


class LoginRefused(PeerdError):
    """A login failed, or came too soon. The text is the same for a wrong name and a wrong password."""

    def __init__(self, status: HTTPStatus, code: str, text: str, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        self.retry_after = retry_after
        super().__init__(text)


class LoginRequest(msgspec.Struct, frozen=True):
    """A login: what was typed, where it comes from, and the session that the browser had."""

    name: str
    password: str
    address: str | None
    replaces: str | None


class LoginService:
    """The logins of a process."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def log_in(self, client: AioClient, request: LoginRequest) -> tuple[str, Actor]:
        """The id of a new session, and its user; raises `LoginRefused`."""
        execute = client.mode.execute
        name, address = request.name, request.address
        if not await execute(Query("run", count_attempt, name, address)):
            text = "too many logins have failed: wait for a quarter of an hour"
            raise LoginRefused(HTTPStatus.TOO_MANY_REQUESTS, "TooManyLogins", text, int(WINDOW))
        credentials = await execute(Query("read", users.find_credentials, name))
        new_hash = await self._compare(credentials, request.password)
        session_id = secrets.token_urlsafe(32)
        actor = None
        if new_hash is not None:
            actor = await execute(Query("run", _open, request, credentials, new_hash, session_id))
        if actor is None:
            await execute(Query("run", _record_failure, request))
            raise LoginRefused(HTTPStatus.UNAUTHORIZED, "LoginFailed", "the name or the password is wrong")
        return session_id, actor

    async def _compare(self, credentials: Credentials, password: str) -> str | None:
        """The hash that the user is to have from now on; None if the password is wrong."""
        if self._waiting >= MOST_WAITING:
            text = "too many logins at once: try again"
            raise LoginRefused(HTTPStatus.SERVICE_UNAVAILABLE, "TooManyLogins", text, 2)
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(_compare, credentials.password_hash, password)
        finally:
            self._waiting -= 1


def _compare(password_hash: str | None, password: str) -> str | None:
    if not passwords.matches(password_hash, password) or password_hash is None:
        return None
    return passwords.hash_password(password) if passwords.needs_rehash(password_hash) else password_hash


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
    sessions.open_session(connection, session_id, request.name, request.address, request.replaces)
    rights = RIGHTS_OF[compared.role]
    actor = Actor(name=request.name, kind=ActorKind.USER, rights=rights, address=request.address)
    write_entry(connection, _entry(request.name, request.address, "session.open", audit.DONE))
    return actor


def _record_failure(connection: Connection, request: LoginRequest) -> None:
    is_known = users.find_user(connection, request.name) is not None
    name = request.name if is_known else UNKNOWN_USER
    write_entry(connection, _entry(name, request.address, "session.open", audit.REFUSED))


def close_session(connection: Connection, session_id: str, actor: Actor) -> None:
    """End a session, and write that it was ended."""
    sessions.delete_session(connection, session_id)
    write_entry(connection, _entry(actor.name, actor.address, "session.close", audit.DONE))


def _entry(name: str, address: str | None, operation: str, outcome: str) -> NewAuditEntry:
    return NewAuditEntry(
        actor_kind=ActorKind.USER,
        actor=name,
        address=address,
        way="api",
        operation=operation,
        outcome=outcome,
        target_kind="user",
        target=name,
        problem=None if outcome == audit.DONE else "the login failed",
    )
