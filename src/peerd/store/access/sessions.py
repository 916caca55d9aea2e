"""Sessions of users that have logged in. The table has digests of their ids, which are of no use to its readers."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.access import Role
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import sessions, users

WRITTEN_EVERY: Final = 60.0
"""Seconds between two writes of the time at which a session, or a token, was seen."""
MAX_AGE: Final = 366 * 86_400.0
"""Seconds after which the row of a session is deleted, whatever [access] session_age is."""
MOST_OF_USER: Final = 100
"""Sessions of one user; the oldest ones end."""


class SessionUser(msgspec.Struct, frozen=True):
    """The user of a session; ``is_due`` says that the time at which it was seen is to be written."""

    name: str
    role: Role
    is_due: bool


def digest(secret: str) -> str:
    """What the table has in place of a secret of 256 random bits, which nothing can guess: no slow hash is needed."""
    return sha256(secret.encode()).hexdigest()


def open_session(connection: Connection, session_id: str, user: str, address: str | None, replaces: str | None) -> None:
    """Write a session, in place of one that the same browser had before."""
    if replaces is not None:
        delete_session(connection, replaces)
    own = sessions.c.user_name == user
    older = sa.select(sessions.c.id).where(own).order_by(sessions.c.created_at.desc(), sessions.c.id)
    surplus = connection.execute(older.offset(MOST_OF_USER - 1).limit(MOST_OF_USER)).scalars().all()
    if surplus:
        connection.execute(sa.delete(sessions).where(sessions.c.id.in_(sorted(surplus))))
    values = {"id": digest(session_id), "user_name": user, "address": address}
    connection.execute(sa.insert(sessions), values)
    connection.execute(sa.update(users).where(users.c.name == user).values(logged_in_at=now(), updated_at=now()))


def find_session(connection: Connection, session_id: str, *, idle: float, age: float) -> SessionUser | None:
    """The user of a session that has not expired.

    Args:
        connection: of a transaction that reads.
        session_id: of the browser's cookie.
        idle: seconds after its last request at which it ends.
        age: seconds after its login at which it ends.
    """
    is_due = sessions.c.seen_at <= seconds_from_now(-min(WRITTEN_EVERY, idle / 2))
    statement = (
        sa.select(users.c.name, users.c.role, is_due.label("is_due"))
        .join(sessions, sessions.c.user_name == users.c.name)
        .where(
            sessions.c.id == digest(session_id),
            sessions.c.seen_at > seconds_from_now(-idle),
            sessions.c.created_at > seconds_from_now(-age),
            sa.not_(users.c.disabled),
        )
    )
    row = connection.execute(statement).first()
    return None if row is None else SessionUser(row.name, Role(row.role), bool(row.is_due))


def touch_session(connection: Connection, session_id: str) -> None:
    """Write that it was seen."""
    connection.execute(sa.update(sessions).where(sessions.c.id == digest(session_id)).values(seen_at=now()))


def delete_session(connection: Connection, session_id: str) -> None:
    """End a session."""
    connection.execute(sa.delete(sessions).where(sessions.c.id == digest(session_id)))


def delete_sessions_of(connection: Connection, user: str) -> None:
    """End all sessions of a user."""
    connection.execute(sa.delete(sessions).where(sessions.c.user_name == user))


def purge_sessions(connection: Connection, limit: int) -> int:
    """Delete sessions that are older than any may be."""
    return purge_older(connection, sessions, sessions.c.created_at, MAX_AGE, limit)


def purge_older(connection: Connection, table: sa.Table, column: sa.Column[Any], age: float, limit: int) -> int:
    """Delete rows whose time in a column is so many seconds ago, the oldest first."""
    old = column <= seconds_from_now(-age)
    first = sa.select(table.c.id).where(old).order_by(column).limit(limit).with_for_update(skip_locked=True)
    ids = sorted(connection.execute(first).scalars())
    return connection.execute(sa.delete(table).where(table.c.id.in_(ids), old)).rowcount if ids else 0
