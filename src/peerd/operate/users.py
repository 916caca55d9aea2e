"""Users of the API and their roles."""

from __future__ import annotations

import unicodedata
from http import HTTPStatus
from typing import Final

from sqlalchemy.engine import Connection

from peerd.domain.access import Right, Role
from peerd.domain.errors import InvalidAccess, InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import NAME_LIMIT, check_text
from peerd.operate import passwords
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.rest import rest
from peerd.store import users
from peerd.store.audit import user_state
from peerd.store.users import User

UserList = list[User]
EAST_ASIAN: Final = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
"""Scripts that names use together."""


class UserOperations(OperationGroup[Mode]):
    """``client.users``. What names a user raises `UserNotFound` where there is none, and ends its sessions."""

    subject = "users"

    @operation(needs=Right.ADMIN, rest=rest("GET /users", name="list_users"))
    def list(self) -> Query[UserList]:
        """All users, by name."""
        return Query("read", users.list_users)

    @operation(needs=Right.ADMIN, rest=rest("POST /users", status=HTTPStatus.CREATED))
    def add(self, name: str, role: Role | str, password: str | None = None) -> Query[User]:
        """Add a user, which can log in from then on.

        Args:
            name: up to 200 printable characters.
            role: ``viewer``, ``operator`` or ``admin``.
            password: 12 to 1,000 characters; None: a trusted proxy names the user ([access] proxy_user_header).

        Raises:
            UserExists: the name is taken.
            InvalidAccess: the name, the role or the password cannot be.
        """
        own_name, own_role = new_name(name), parse_role(role)
        given = None if password is None else passwords.checked(password)
        return Query("run", _add, own_name, own_role, given).acting_on("user", own_name, user_state, own_name)

    @operation(needs=Right.ADMIN, rest=rest("PATCH /users/{user}"))
    def change(self, name: str, *, role: Role | str | None = None, disabled: bool | None = None) -> Query[User]:
        """Change the role of a user, or disable or enable it.

        Raises:
            InvalidAccess: nothing to change, or no role.
            LastAdmin: over the API: no enabled admin with a password would be left.
        """
        if role is None and disabled is None:
            raise InvalidAccess("role", "nothing is to be changed; give a role or disabled")
        if not isinstance(disabled, bool | None):
            raise InvalidAccess("disabled", "is neither true nor false")
        new_role = None if role is None else parse_role(role)
        query = Query(
            "run",
            users.change_user,
            checked_name(name),
            role=new_role,
            disabled=disabled,
            keep_an_admin=self._must_keep_an_admin,
        )
        return query.acting_on("user", name, user_state, name)

    @operation(needs=Right.ADMIN, rest=rest("PUT /users/{user}/password", answer="nothing"))
    def set_password(self, name: str, password: str) -> Query[None]:
        """Set the password of a user: 12 to 1,000 characters.

        Raises:
            InvalidAccess: it is too short or too long.
        """
        query = Query("run", _set_password, checked_name(name), passwords.checked(password))
        return query.acting_on("user", name, user_state, name)

    @operation(needs=Right.ADMIN, rest=rest("DELETE /users/{user}", answer="nothing"))
    def remove(self, name: str) -> Query[None]:
        """Remove a user.

        Raises:
            LastAdmin: over the API: no enabled admin with a password would be left.
        """
        query = Query("run", users.remove_user, checked_name(name), keep_an_admin=self._must_keep_an_admin)
        return query.acting_on("user", name, user_state, name)

    @property
    def _must_keep_an_admin(self) -> bool:
        return self._actor.way == "api"


def checked_name(name: object) -> str:
    """A name of a user or a token; raises `InvalidAccess`. Of two forms of the same letters one is left.

    >>> checked_name("ann") == "ann"
    True
    """
    if not isinstance(name, str):
        raise InvalidAccess("name", f"{quoted(name)} is not text")
    try:
        check_text("name", name, NAME_LIMIT)
    except InvalidTask as error:
        raise InvalidAccess("name", error.problem) from None
    if not name.isprintable() or name != name.strip() or not name or unicodedata.normalize("NFKC", name) != name:
        raise InvalidAccess("name", f"{quoted(name)} is not 1 to {NAME_LIMIT} printable characters in the form NFKC")
    return name


def new_name(name: object) -> str:
    """Check a name as `checked_name` does, and that it has one script: letters of another one may look the same.

    >>> new_name("ann"), new_name("аня"), new_name("ジョン山田")
    ('ann', 'аня', 'ジョン山田')
    """
    checked = checked_name(name)
    letters = [letter for letter in checked if unicodedata.category(letter) in {"Ll", "Lo", "Lt", "Lu"}]
    scripts = {unicodedata.name(letter, "unknown").split(" ")[0].split("-")[0] for letter in letters}
    if len(scripts - EAST_ASIAN) + bool(scripts & EAST_ASIAN) > 1:
        named = ", ".join(sorted(script.capitalize() for script in scripts))
        raise InvalidAccess("name", f"{quoted(name)} mixes letters of {named}, which may look alike: use one script")
    return checked


def parse_role(role: object) -> Role:
    """The role of this name; raises `InvalidAccess`."""
    try:
        return Role(role)  # type: ignore[arg-type]  # anything; it raises
    except ValueError:
        raise InvalidAccess("role", f"{quoted(role)} is none of {', '.join(Role)}") from None


def _add(connection: Connection, name: str, role: Role, password: str | None) -> User:
    return users.add_user(connection, name, role, None if password is None else passwords.hash_password(password))


def _set_password(connection: Connection, name: str, password: str) -> None:
    users.set_password_hash(connection, name, passwords.hash_password(password))
