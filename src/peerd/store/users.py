"""Users of the API: their roles, the hashes of their passwords, their sessions, and limits of failed logins.

The table of sessions has digests of their ids, which are of no use to its readers. Sessions and limits hold over all
processes and nodes.

A failure is counted when its password was compared and is wrong, so that nothing else, such as an overload, locks a
user out. Guesses that are compared at the same time, two in a process, are not counted yet for one another. Three
counts limit an attempt, each within `WINDOW`: of its name from its address, of its name from any address, and of its
address for any name. The last two are larger, and do not hold for an address from which the user has logged in before:
strangers cannot lock a user out of the usual place.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b, sha256
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.access import Role
from peerd.domain.errors import LastAdmin, UserExists, UserNotFound
from peerd.store.records import add_new, columns_of, delete_older, read_all, read_first
from peerd.store.schema.tables import login_failures, sessions, users
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import insert_if_absent


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
    is_no_admin = bool(disabled) or role not in {None, Role.ADMIN}
    _lock(connection, name, require_another_admin=keep_an_admin and is_no_admin)
    given = {"role": role, "disabled": disabled}
    values: dict[str, Any] = {column: value for column, value in given.items() if value is not None}
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
    _lock(connection, name, require_another_admin=keep_an_admin)
    delete_sessions_of(connection, name)
    connection.execute(sa.delete(users).where(users.c.name == name))


def _lock(connection: Connection, name: str, *, require_another_admin: bool) -> None:
    """Lock a user; one that may be the last admin with all admins, in the order of names: there must be two.

    Raises:
        UserNotFound: there is none of this name.
        LastAdmin: it is the only enabled admin with a password.
    """
    if require_another_admin:
        admins = sa.select(users.c.name).where(sa.or_(users.c.role == Role.ADMIN, users.c.name == name))
        connection.execute(admins.order_by(users.c.name).with_for_update()).all()
    user = get_user(connection, name, lock=True)
    if require_another_admin and user.role is Role.ADMIN and not user.disabled:
        is_other = users.c.role == Role.ADMIN, users.c.name != name, sa.not_(users.c.disabled), HAS_PASSWORD
        if connection.execute(sa.select(users.c.name).where(*is_other).limit(1)).first() is None:
            raise LastAdmin(name)


# ---------------------------------------------------------------- sessions


WRITTEN_EVERY: Final = 60.0
"""Seconds between two writes of the time at which a session, or a token, was seen."""
MAX_AGE: Final = 366 * 86_400.0
"""Seconds after which the row of a session is deleted, for any [access] session_age."""
MOST_OF_USER: Final = 100
"""Sessions of one user; the oldest ones end."""
WINDOW: Final = 900.0
MOST_OF_PAIR: Final = 10
MOST_OF_NAME: Final = 100
MOST_OF_ADDRESS: Final = 100
KEPT: Final = 30 * 86_400.0
"""Seconds for which an address is remembered."""


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
    connection.execute(sa.insert(sessions).values(id=digest(session_id), user_name=user, address=address))
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
    return read_first(connection, SessionUser, statement)


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
    return delete_older(connection, sessions, sessions.c.created_at, MAX_AGE, limit)


# ---------------------------------------------------------------- limits of logins


def may_attempt(connection: Connection, name: str, address: str | None) -> bool:
    """Whether a password may be compared, after what has failed."""
    pair, of_name, of_address = _keys(name, address)
    columns = (login_failures.c.id, login_failures.c.succeeded_at, _counted().label("failures"))
    found = connection.execute(sa.select(*columns).where(login_failures.c.id.in_((pair, of_name, of_address))))
    rows = {row.id: row for row in found}
    failures = {one: row.failures for one, row in rows.items()}
    if failures.get(pair, 0) >= MOST_OF_PAIR:
        return False
    is_usual = pair in rows and rows[pair].succeeded_at is not None
    is_within = failures.get(of_name, 0) < MOST_OF_NAME and failures.get(of_address, 0) < MOST_OF_ADDRESS
    return is_usual or is_within


def count_failure(connection: Connection, name: str, address: str | None) -> None:
    """Count a password that was compared and is wrong."""
    ids = sorted(_keys(name, address))
    insert_if_absent(connection, login_failures, [{"id": one} for one in ids], key=("id",))
    begins = sa.case((_is_over(), now()), else_=login_failures.c.began_at)
    for one in ids:  # in one order, so that two of them do not wait for each other
        mine = sa.update(login_failures).where(login_failures.c.id == one)
        connection.execute(
            mine.ordered_values((login_failures.c.failures, _counted() + 1), (login_failures.c.began_at, begins))
        )


def record_success(connection: Connection, name: str, address: str | None) -> None:
    """Forget the failures of a user from an address, and remember the address."""
    pair, _, _ = _keys(name, address)
    insert_if_absent(connection, login_failures, [{"id": pair}], key=("id",))
    mine = sa.update(login_failures).where(login_failures.c.id == pair)
    connection.execute(mine.values(failures=0, began_at=now(), succeeded_at=now()))


def purge_login_failures(connection: Connection, limit: int) -> int:
    """Delete counts that are no longer used."""
    return delete_older(connection, login_failures, login_failures.c.began_at, KEPT, limit)


def network_of(address: str | None) -> str:
    """The part of an address that one holder has: of IPv6, the first 64 bits.

    >>> network_of("2001:db8::1"), network_of("::ffff:10.0.0.7"), network_of("10.0.0.7"), network_of(None)
    ('2001:db8::/64', '10.0.0.7', '10.0.0.7', '')
    """
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return address or ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"


def _is_over() -> sa.ColumnElement[bool]:
    return login_failures.c.began_at <= seconds_from_now(-WINDOW)


def _counted() -> sa.ColumnElement[int]:
    """The failures of the window that has not ended."""
    return sa.case((_is_over(), 0), else_=login_failures.c.failures)


def _keys(name: str, address: str | None) -> tuple[str, str, str]:
    """The ids of the three counts: digests, because a name that is tried may be a password by mistake."""
    network = network_of(address)
    parts = (("pair", name, network), ("name", name, ""), ("address", "", network))
    pair, of_name, of_address = (blake2b("\0".join(one).encode(), digest_size=16).hexdigest() for one in parts)
    return pair, of_name, of_address
