"""Tokens of the API: what programs present in place of a login.

A token is ``peerd_PREFIX_SECRET``. The prefix finds its row. The secret is 256 random bits; the row has a
digest: a slow hash such as argon2 protects what people choose and others can guess, and would cost 50 ms a request.
"""

from __future__ import annotations

import hmac
import re
import secrets
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.access import Right
from peerd.domain.errors import TokenNotFound
from peerd.store.access.logins import WRITTEN_EVERY, digest
from peerd.store.schema.tables import api_tokens
from peerd.store.schema.types import now, seconds_from_now

FORM: Final = re.compile(r"peerd_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
RIGHTS: Final = msgspec.json.Decoder(frozenset[Right])
QUEUES: Final = msgspec.json.Decoder(frozenset[str])
FILE_SCOPES: Final = msgspec.json.Decoder(tuple[str, ...])


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret.

    Attributes:
        name: what it is for.
        prefix: its beginning, by which a token at hand is found in the list.
        queues: those that it is restricted to; None: it is not.
        file_scopes: BUCKET or BUCKET/PREFIX, the files that it is restricted to; None: it is not.
    """

    id: int
    name: str
    prefix: str
    rights: frozenset[Right]
    queues: frozenset[str] | None
    file_scopes: tuple[str, ...] | None = None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was created; its secret is shown this once."""

    token: ApiToken
    secret: str


class PresentedToken(msgspec.Struct, frozen=True):
    """The token of a request; ``is_due`` says that the time of its use is to be written."""

    token: ApiToken
    is_due: bool


def create_token(
    connection: Connection,
    name: str,
    rights: frozenset[Right],
    queues: frozenset[str] | None,
    expires_in: float | None,
    file_scopes: tuple[str, ...] | None = None,
) -> NewToken:
    """Create a token; ``expires_in`` is in seconds, None never."""
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    token = f"peerd_{prefix}_{secret}"
    values = {
        "name": name,
        "prefix": prefix,
        "hash": digest(token),
        "rights": msgspec.json.encode(sorted(rights)).decode(),
        "queues": None if queues is None else msgspec.json.encode(sorted(queues)).decode(),
        "file_scopes": None if file_scopes is None else msgspec.json.encode(file_scopes).decode(),
        "expires_at": None if expires_in is None else seconds_from_now(expires_in),
    }
    connection.execute(sa.insert(api_tokens).values(values))
    row = connection.execute(sa.select(api_tokens).where(api_tokens.c.prefix == prefix)).mappings().one()
    return NewToken(token=_to_token(row), secret=token)


def list_tokens(connection: Connection) -> list[ApiToken]:
    """All tokens, the newest first."""
    return [
        _to_token(row) for row in connection.execute(sa.select(api_tokens).order_by(api_tokens.c.id.desc())).mappings()
    ]


def get_token(connection: Connection, token_id: int, *, lock: bool = False) -> ApiToken:
    """The token of this id; raises `TokenNotFound`."""
    statement = sa.select(api_tokens).where(api_tokens.c.id == token_id)
    row = connection.execute(statement.with_for_update() if lock else statement).mappings().first()
    if row is None:
        raise TokenNotFound(token_id)
    return _to_token(row)


def revoke_token(connection: Connection, token_id: int) -> None:
    """Revoke a token at once. Its row stays, so that the audit log can be read; one that is revoked stays so.

    Raises:
        TokenNotFound: there is none of this id.
    """
    get_token(connection, token_id, lock=True)
    is_valid = sa.and_(api_tokens.c.id == token_id, api_tokens.c.revoked_at.is_(None))
    connection.execute(sa.update(api_tokens).where(is_valid).values(revoked_at=now()))


def find_token(connection: Connection, presented: str) -> PresentedToken | None:
    """The token that a request presents, if it is valid now."""
    form = FORM.fullmatch(presented)
    if form is None:
        return None
    is_due = sa.or_(api_tokens.c.last_used_at.is_(None), api_tokens.c.last_used_at <= seconds_from_now(-WRITTEN_EVERY))
    is_valid = sa.and_(
        api_tokens.c.prefix == form[1],
        api_tokens.c.revoked_at.is_(None),
        sa.or_(api_tokens.c.expires_at.is_(None), api_tokens.c.expires_at > now()),
    )
    row = connection.execute(sa.select(api_tokens, is_due.label("is_due")).where(is_valid)).mappings().first()
    if row is None or not hmac.compare_digest(row["hash"], digest(presented)):
        return None
    return PresentedToken(_to_token(row), bool(row["is_due"]))


def touch_token(connection: Connection, token_id: int) -> None:
    """Write that it is used."""
    connection.execute(sa.update(api_tokens).where(api_tokens.c.id == token_id).values(last_used_at=now()))


def _to_token(row: Any) -> ApiToken:
    values: dict[str, Any] = {field: row[field] for field in ApiToken.__struct_fields__}
    try:
        values["rights"] = RIGHTS.decode(row["rights"])
        values["queues"] = None if row["queues"] is None else QUEUES.decode(row["queues"])
        values["file_scopes"] = None if row["file_scopes"] is None else FILE_SCOPES.decode(row["file_scopes"])
    except msgspec.MsgspecError:  # SQL by hand has made them unreadable: the token allows nothing, and hides no others
        values |= {"rights": frozenset(), "queues": frozenset(), "file_scopes": ()}
    return ApiToken(**values)
