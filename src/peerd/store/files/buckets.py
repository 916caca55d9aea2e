"""Buckets: sets of files with a class, a quota and counts of what they have; and the access keys of S3's clients."""

from __future__ import annotations

import json
import secrets
from base64 import b32encode
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.access import MAX_SCOPES, FileAccessKey, FileRights, FileScope
from peerd.domain.file_errors import (
    AccessKeyNotFound,
    BucketExists,
    BucketNotEmpty,
    BucketNotFound,
    InvalidFile,
    QuotaExceeded,
)
from peerd.domain.files import DEFAULT_CLASS, FileClass, check_bucket_name
from peerd.store.files.disks import get_class
from peerd.store.schema.tables import file_access_keys, file_buckets, file_classes, file_uploads, file_usage, files
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.rows import to_whole_number
from peerd.store.upserts import insert_new

USAGE_PARTS = 16
"""Rows that share the count of a bucket, so that puts at the same time seldom wait for each other."""
_GIVEN_CLASS = sa.bindparam("wanted_class", type_=file_classes.c.name.type)
_HOLD = sa.select(file_buckets.c.id).where(file_buckets.c.id == sa.bindparam("held")).with_for_update(read=True)
_USAGE = sa.select(sa.func.sum(file_usage.c.files), sa.func.sum(file_usage.c.bytes)).where(
    file_usage.c.bucket_id == sa.bindparam("used")
)
_COUNT = (
    sa.update(file_usage)
    .where(file_usage.c.bucket_id == sa.bindparam("of_bucket"), file_usage.c.part == sa.bindparam("of_part"))
    .values(
        files=file_usage.c.files + sa.bindparam("files_added", type_=sa.BigInteger()),
        bytes=file_usage.c.bytes + sa.bindparam("bytes_added", type_=sa.BigInteger()),
    )
)
USE_NOTED_EVERY: Final = 60.0
"""Seconds within which the use of a key is written once."""
_PREFIX: Final = "PEERD"
_COLUMNS: Final = tuple(file_access_keys.c[field] for field in FileAccessKey.__struct_fields__ if field != "is_valid")


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket.

    Attributes:
        class_name: the class of files that are put without one.
        quota: the most bytes of its current files; None: no limit.
    """

    id: int
    name: str
    class_name: str
    quota: int | None
    created_at: datetime


class Usage(msgspec.Struct, frozen=True):
    """How many files a bucket has, and their bytes; each file counts once, however many copies it has."""

    files: int
    bytes: int


BUCKET_COLUMNS = tuple(file_buckets.c[field] for field in Bucket.__struct_fields__)
_WITH_CLASS = (
    sa.select(
        *BUCKET_COLUMNS,
        file_classes.c.name.label("class"),
        *(file_classes.c[field] for field in FileClass.__struct_fields__ if field != "name"),
    )
    .outerjoin(file_classes, file_classes.c.name == sa.func.coalesce(_GIVEN_CLASS, file_buckets.c.class_name))
    .where(file_buckets.c.name == sa.bindparam("bucket"))
)


def list_buckets(connection: Connection) -> list[Bucket]:
    """All buckets, by name."""
    found = connection.execute(sa.select(*BUCKET_COLUMNS).order_by(file_buckets.c.name))
    return [Bucket(**row) for row in found.mappings()]


def get_bucket(connection: Connection, name: str) -> Bucket:
    """The bucket of this name.

    Raises:
        BucketNotFound: there is none.
    """
    row = connection.execute(sa.select(*BUCKET_COLUMNS).where(file_buckets.c.name == name)).mappings().first()
    if row is None:
        raise BucketNotFound(name, [bucket.name for bucket in list_buckets(connection)][:20])
    return Bucket(**row)


def get_bucket_and_class(connection: Connection, name: str, class_name: str | None = None) -> tuple[Bucket, FileClass]:
    """A bucket, and a class, by one statement: what each put asks.

    Args:
        connection: of a read.
        name: of the bucket.
        class_name: of the class; None: the bucket's.

    Raises:
        BucketNotFound, FileClassNotFound: there is none.
    """
    values = {"bucket": name, "wanted_class": class_name}
    row = connection.execute(_WITH_CLASS, values).mappings().first()
    if row is None:
        return get_bucket(connection, name), get_class(connection, class_name or DEFAULT_CLASS)
    bucket = Bucket(**{field: row[field] for field in Bucket.__struct_fields__})
    if row["class"] is None:
        return bucket, get_class(connection, class_name or bucket.class_name)
    own = {field: row[field] for field in FileClass.__struct_fields__ if field != "name"}
    return bucket, FileClass(name=row["class"], **own)


def create_bucket(
    connection: Connection, name: str, class_name: str = DEFAULT_CLASS, quota: int | None = None
) -> Bucket:
    """Create a bucket.

    Raises:
        InvalidFile: its name or its quota is wrong.
        FileClassNotFound: there is no such class.
        BucketExists: there is one of this name.
    """
    check_bucket_name(name)
    _check_quota(quota)
    get_class(connection, class_name)
    values = {"name": name, "class_name": class_name, "quota": quota}
    if not connection.execute(insert_new(file_buckets, connection.dialect.name).values(values)).rowcount:
        raise BucketExists(name)
    return get_bucket(connection, name)


def change_bucket(
    connection: Connection,
    name: str,
    *,
    class_name: str | None = None,
    quota: int | None = None,
    no_quota: bool = False,
) -> Bucket:
    """Change the class of files that are put from now on, or the quota; ``no_quota`` removes it.

    Raises:
        BucketNotFound, FileClassNotFound, InvalidFile: see `create_bucket`.
    """
    bucket = get_bucket(connection, name)
    _check_quota(quota)
    if class_name is not None:
        get_class(connection, class_name)
    values = {
        "class_name": class_name or bucket.class_name,
        "quota": None if no_quota else bucket.quota if quota is None else quota,
    }
    connection.execute(sa.update(file_buckets).where(file_buckets.c.id == bucket.id).values(**values))
    return get_bucket(connection, name)


def delete_bucket(connection: Connection, name: str) -> None:
    """Delete a bucket without files and uploads; the row is locked, so that no put can come between.

    Raises:
        BucketNotFound: there is none.
        BucketNotEmpty: it has files or unfinished uploads.
    """
    bucket = get_bucket(connection, name)
    connection.execute(sa.select(file_buckets.c.id).where(file_buckets.c.id == bucket.id).with_for_update())
    for table, condition in (
        (files, sa.and_(files.c.bucket_id == bucket.id, files.c.is_current == 1)),
        (file_uploads, file_uploads.c.bucket_id == bucket.id),
    ):
        if connection.execute(sa.select(table.c.id).where(condition).limit(1)).first() is not None:
            raise BucketNotEmpty(name)
    connection.execute(sa.delete(file_usage).where(file_usage.c.bucket_id == bucket.id))
    connection.execute(sa.delete(file_buckets).where(file_buckets.c.id == bucket.id))


def hold_bucket(connection: Connection, bucket_id: int) -> bool:
    """Keep a bucket from being deleted until the transaction ends; whether it is there."""
    return connection.execute(_HOLD, {"held": bucket_id}).first() is not None


def bucket_usage(connection: Connection, bucket_id: int) -> Usage:
    """What the current files of a bucket add up to."""
    count, size = connection.execute(_USAGE, {"used": bucket_id}).one()
    return Usage(to_whole_number(count), to_whole_number(size))


def count_in_bucket(connection: Connection, bucket_id: int, file_id: int, files_added: int, bytes_added: int) -> None:
    """Count a file that was added, or, with negative numbers, one that is not current any more."""
    part = file_id % USAGE_PARTS
    values = {"of_bucket": bucket_id, "of_part": part, "files_added": files_added, "bytes_added": bytes_added}
    if not connection.execute(_COUNT, values).rowcount:
        row = {"bucket_id": bucket_id, "part": part, "files": 0, "bytes": 0}
        connection.execute(insert_new(file_usage, connection.dialect.name).values(row))
        connection.execute(_COUNT, values)


def check_quota(connection: Connection, bucket: Bucket, size: int, freed: int = 0) -> None:
    """Check that a file fits into its bucket, whose current one of ``freed`` bytes it replaces.

    Puts at the same moment do not see each other, so together they can exceed the quota once.

    Raises:
        QuotaExceeded: it does not.
    """
    if bucket.quota is not None:
        used = bucket_usage(connection, bucket.id).bytes
        if used - freed + size > bucket.quota:
            raise QuotaExceeded(bucket.name, bucket.quota, used, size)


def _check_quota(quota: int | None) -> None:
    if quota is not None and not 0 <= quota < 2**63:
        raise InvalidFile("quota", f"{quota} is not a number of bytes from 0 to 2**63 - 1")


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
