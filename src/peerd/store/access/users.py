"""Users of the API: their roles, and the hashes of their passwords."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.access import Role
from peerd.domain.errors import LastAdmin, UserExists, UserNotFound
from peerd.store.access.logins import delete_sessions_of
from peerd.store.records import add_new, columns_of, read_all, read_first
from peerd.store.schema.tables import users
from peerd.store.schema.types import now


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user. Without a password, a trusted proxy must name it."""

    name: str
    role: Role
    disabled: bool
    has_password: bool
    logged_in_at: datetime | None
    created_at: datetime


class Credentials(msgspec.Struct, frozen=True):
    """What a login is compared with; no hash where nothing can log in."""

    role: Role | None = None
    password_hash: str | None = None


HAS_PASSWORD: Final = users.c.password_hash.is_not(None)
SELECT: Final = sa.select(*columns_of(User, users, has_password=HAS_PASSWORD))


def has_users(connection: Connection) -> bool:
    """Whether there is a user, of any state."""
    return bool(connection.execute(sa.select(sa.exists(sa.select(users.c.name)))).scalar())


def list_users(connection: Connection) -> list[User]:
    """All users, by name."""
    return read_all(connection, User, SELECT.order_by(users.c.name))


def find_user(connection: Connection, name: str, *, lock: bool = False) -> User | None:
    """The user of a name, if there is one; ``lock`` keeps others from writing it before the transaction ends."""
    statement = SELECT.where(users.c.name == name)
    return read_first(connection, User, statement.with_for_update() if lock else statement)


def get_user(connection: Connection, name: str, *, lock: bool = False) -> User:
    """The user of a name; raises `UserNotFound`."""
    user = find_user(connection, name, lock=lock)
    if user is None:
        raise UserNotFound(name)
    return user


def find_credentials(connection: Connection, name: str) -> Credentials:
    """The role and the hash of a user that may log in; empty ones of any other name."""
    can_log_in = sa.and_(users.c.name == name, sa.not_(users.c.disabled), HAS_PASSWORD)
    row = connection.execute(sa.select(users.c.role, users.c.password_hash).where(can_log_in)).first()
    return Credentials() if row is None else Credentials(Role(row.role), row.password_hash)


def add_user(connection: Connection, name: str, role: Role, password_hash: str | None) -> User:
    """Add a user.

    Raises:
        UserExists: the name is taken.
    """
    values = {"name": name, "role": role, "password_hash": password_hash}
    if not add_new(connection, users, values):
        raise UserExists(name)
    return get_user(connection, name)


def change_user(
    connection: Connection,
    name: str,
    *,
    role: Role | None = None,
    disabled: bool | None = None,
    keep_an_admin: bool = False,
) -> User:
    """Change the role of a user, or whether it is disabled; its sessions end.

    Raises:
        UserNotFound: there is none.
        LastAdmin: no enabled admin with a password would be left, and ``keep_an_admin``.
    """
    user = _lock(connection, name, keep_an_admin=keep_an_admin)
    given = {"role": role, "disabled": disabled}
    values: dict[str, Any] = {column: value for column, value in given.items() if value is not None}
    if keep_an_admin and (disabled or role not in {None, Role.ADMIN}):
        _require_another_admin(connection, user)
    connection.execute(sa.update(users).where(users.c.name == name).values(updated_at=now(), **values))
    delete_sessions_of(connection, name)
    return get_user(connection, name)


def set_password_hash(connection: Connection, name: str, password_hash: str) -> None:
    """Write the hash of a new password; the user's sessions end.

    Raises:
        UserNotFound: there is no such user.
    """
    get_user(connection, name, lock=True)
    replace_hash(connection, name, password_hash)
    delete_sessions_of(connection, name)


def replace_hash(connection: Connection, name: str, password_hash: str, old: str | None = None) -> None:
    """Write another hash, of the same password if ``old`` is its hash until now."""
    conditions = [users.c.name == name] + ([] if old is None else [users.c.password_hash == old])
    connection.execute(sa.update(users).where(*conditions).values(password_hash=password_hash, updated_at=now()))


def remove_user(connection: Connection, name: str, *, keep_an_admin: bool = False) -> None:
    """Delete a user and its sessions.

    Raises:
        UserNotFound: there is none.
        LastAdmin: see `change_user`.
    """
    user = _lock(connection, name, keep_an_admin=keep_an_admin)
    if keep_an_admin:
        _require_another_admin(connection, user)
    delete_sessions_of(connection, name)
    connection.execute(sa.delete(users).where(users.c.name == name))


def _lock(connection: Connection, name: str, *, keep_an_admin: bool) -> User:
    """The user, locked; for a change that may take away the last admin, with all admins, in the order of names."""
    if keep_an_admin:
        admins = sa.select(users.c.name).where(sa.or_(users.c.role == Role.ADMIN, users.c.name == name))
        connection.execute(admins.order_by(users.c.name).with_for_update()).all()
    return get_user(connection, name, lock=True)


def _require_another_admin(connection: Connection, user: User) -> None:
    if user.role is not Role.ADMIN or user.disabled:
        return
    others = sa.select(users.c.name).where(
        users.c.role == Role.ADMIN, users.c.name != user.name, sa.not_(users.c.disabled), HAS_PASSWORD
    )
    if connection.execute(others.limit(1)).first() is None:
        raise LastAdmin(user.name)


def _to_user(row: sa.RowMapping) -> User:
    values = dict(row)
    values |= {"role": Role(row["role"]), "disabled": bool(row["disabled"]), "has_password": bool(row["has_password"])}
    return User(**values)
