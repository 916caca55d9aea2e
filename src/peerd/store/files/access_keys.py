"""Access keys of S3's clients: created, listed, revoked, and found for a request."""

from __future__ import annotations

import json
import secrets
from base64 import b32encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.access import MAX_SCOPES, FileAccessKey, FileRights, FileScope
from peerd.domain.file_errors import AccessKeyNotFound, InvalidFile
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import file_access_keys

USE_NOTED_EVERY: Final = 60.0
"""Seconds within which the use of a key is written once."""
_PREFIX: Final = "PEERD"
_COLUMNS: Final = tuple(file_access_keys.c[field] for field in FileAccessKey.__struct_fields__ if field != "is_valid")


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
    key_id = _PREFIX + b32encode(secrets.token_bytes(10)).decode()[:15]
    values: dict[str, Any] = {
        "id": key_id,
        "name": name,
        "rights": rights.value,
        "scopes": None if scopes is None else json.dumps(list(scopes), ensure_ascii=False),
        "created_by": created_by,
    }
    if expires_in is not None:
        values["expires_at"] = seconds_from_now(expires_in)
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
    """Write that a key was used, once within `USE_NOTED_EVERY` seconds."""
    last = file_access_keys.c.last_used_at
    is_due = sa.or_(last.is_(None), last < seconds_from_now(-USE_NOTED_EVERY))
    connection.execute(
        sa.update(file_access_keys).where(file_access_keys.c.id == key_id, is_due).values(last_used_at=now())
    )


def _select() -> sa.Select[Any]:
    expires, revoked = file_access_keys.c.expires_at, file_access_keys.c.revoked_at
    is_valid = sa.and_(revoked.is_(None), sa.or_(expires.is_(None), expires > now()))
    return sa.select(*_COLUMNS, sa.case((is_valid, 1), else_=0).label("is_valid"))


def _to_key(row: RowMapping) -> FileAccessKey:
    values = dict(row)
    values["rights"] = FileRights(values["rights"])
    try:
        values["scopes"] = (
            None if values["scopes"] is None else msgspec.json.decode(values["scopes"], type=tuple[str, ...])
        )
    except msgspec.MsgspecError:  # SQL by hand has made them unreadable: the key allows nothing, and hides no others
        values["scopes"] = ()
    values["is_valid"] = bool(values["is_valid"])
    return FileAccessKey(**values)
