"""Tokens of the API, and access keys of S3: what programs present in place of a login.

A token is ``peerd_PREFIX_SECRET``. The prefix finds its row. The secret is 256 random bits; the row has a
digest: a slow hash such as argon2 protects what people choose and others can guess, and would cost 50 ms a request.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b32encode
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.access import MAX_SCOPES, FileAccessKey, FileRights, FileScope, Right
from peerd.domain.errors import TokenNotFound
from peerd.domain.file_errors import AccessKeyNotFound, InvalidFile
from peerd.store.records import to_record
from peerd.store.schema.tables import api_tokens, file_access_keys
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.users import WRITTEN_EVERY, digest

FORM: Final = re.compile(r"peerd_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
RIGHTS: Final = msgspec.json.Decoder(frozenset[Right])
QUEUES: Final = msgspec.json.Decoder(frozenset[str])
FILE_SCOPES: Final = msgspec.json.Decoder(tuple[str, ...])
_KEY_PREFIX: Final = "PEERD"


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


class NewToken(ApiToken, frozen=True, kw_only=True):
    """A token that was created.

    Attributes:
        secret: what a program sends; it is shown this once.
    """

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
    return NewToken(**msgspec.structs.asdict(_to_token(row)), secret=token)


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
    is_it = api_tokens.c.prefix == form[1], _is_valid(api_tokens)
    row = connection.execute(sa.select(api_tokens, is_due.label("is_due")).where(*is_it)).mappings().first()
    if row is None or not hmac.compare_digest(row["hash"], digest(presented)):
        return None
    return PresentedToken(_to_token(row), bool(row["is_due"]))


def touch_token(connection: Connection, token_id: int) -> None:
    """Write that it is used."""
    connection.execute(sa.update(api_tokens).where(api_tokens.c.id == token_id).values(last_used_at=now()))


def _to_token(row: RowMapping) -> ApiToken:
    try:
        granted = {"rights": RIGHTS.decode(row["rights"]), **_decode(row, queues=QUEUES, file_scopes=FILE_SCOPES)}
    except msgspec.MsgspecError:  # SQL by hand has made them unreadable: the token allows nothing, and hides no others
        granted = {"rights": frozenset(), "queues": frozenset(), "file_scopes": ()}
    return to_record(ApiToken, row, **granted)


# ---------------------------------------------------------------- access keys


def create_access_key(
    connection: Connection,
    name: str,
    rights: FileRights = FileRights.ALL,
    *,
    scopes: Sequence[str] | None = None,
    created_by: str | None = None,
    expires_in: float | None = None,
) -> FileAccessKey:
    """Create an access key; its secret is derived from its id (`peerd.doorbell.cluster_secret`).

    Args:
        connection: in a transaction.
        name: whose it is, or what for.
        rights: what it may do.
        scopes: BUCKET or BUCKET/PREFIX, where the bucket may end with ``*``; None: all files.
        created_by: the user.
        expires_in: seconds; None: it is valid until it is revoked.

    Raises:
        InvalidFile: the name, a scope or the time is wrong.
    """
    if not 1 <= len(name) <= 200 or "\0" in name:
        raise InvalidFile("name", "it has 1 to 200 characters, none of them NUL")
    if scopes is not None and not 1 <= len(scopes) <= MAX_SCOPES:
        raise InvalidFile("scopes", f"give 1 to {MAX_SCOPES}, or none for all files")
    if expires_in is not None and expires_in <= 0:
        raise InvalidFile("expires_in", "give a time in the future, or none")
    for scope in scopes or ():
        FileScope.parse(scope)
    key_id = _KEY_PREFIX + b32encode(secrets.token_bytes(10)).decode()[:15]
    values = {
        "id": key_id,
        "name": name,
        "rights": rights.value,
        "scopes": None if scopes is None else msgspec.json.encode(scopes).decode(),
        "created_by": created_by,
        "expires_at": None if expires_in is None else seconds_from_now(expires_in),
    }
    connection.execute(sa.insert(file_access_keys).values(values))
    return get_access_key(connection, key_id)


def list_access_keys(connection: Connection) -> list[FileAccessKey]:
    """All access keys, also those that are not valid any more, the oldest first."""
    found = _select().order_by(file_access_keys.c.created_at, file_access_keys.c.id)
    return [_to_key(row) for row in connection.execute(found).mappings()]


def find_access_key(connection: Connection, key_id: str) -> FileAccessKey | None:
    """The access key of this id, if there is one."""
    row = connection.execute(_select().where(file_access_keys.c.id == key_id)).mappings().first()
    return None if row is None else _to_key(row)


def get_access_key(connection: Connection, key_id: str) -> FileAccessKey:
    """The access key of this id. Raises AccessKeyNotFound."""
    found = find_access_key(connection, key_id)
    if found is None:
        raise AccessKeyNotFound(key_id)
    return found


def revoke_access_key(connection: Connection, key_id: str) -> FileAccessKey:
    """Make a key invalid from the next request on; again, it does nothing. Raises AccessKeyNotFound."""
    is_it = file_access_keys.c.id == key_id, file_access_keys.c.revoked_at.is_(None)
    connection.execute(sa.update(file_access_keys).where(*is_it).values(revoked_at=now()))
    return get_access_key(connection, key_id)


def note_use(connection: Connection, key_id: str) -> None:
    """Write that a key was used, once within `WRITTEN_EVERY` seconds."""
    last = file_access_keys.c.last_used_at
    is_due = sa.or_(last.is_(None), last < seconds_from_now(-WRITTEN_EVERY))
    connection.execute(
        sa.update(file_access_keys).where(file_access_keys.c.id == key_id, is_due).values(last_used_at=now())
    )


def _select() -> sa.Select[Any]:
    return sa.select(file_access_keys, _is_valid(file_access_keys).label("is_valid"))


def _to_key(row: RowMapping) -> FileAccessKey:
    try:
        granted = _decode(row, scopes=FILE_SCOPES)
    except msgspec.MsgspecError:  # as above
        granted = {"scopes": ()}
    return to_record(FileAccessKey, row, **granted)


# ---------------------------------------------------------------- what tokens and access keys share


def _is_valid(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.revoked_at.is_(None), sa.or_(table.c.expires_at.is_(None), table.c.expires_at > now()))


def _decode(row: RowMapping, **decoders: msgspec.json.Decoder[Any]) -> dict[str, Any]:
    return {name: None if row[name] is None else decoder.decode(row[name]) for name, decoder in decoders.items()}
