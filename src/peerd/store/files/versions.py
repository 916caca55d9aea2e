"""Versions of files: staged, replaced, moved and deleted; `peerd.store.files.publishing` makes them current.

A reader finds one version of a key or the next, never a mixture: the content of a version does not change, and which
version is current is one column of two rows, written in one transaction. What was current becomes a tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import DatabaseBusy
from peerd.domain.file_errors import FileConditionFailed, FileMissing
from peerd.domain.files import CopyState, FileState, StoredFile, check_key
from peerd.store.files.buckets import Bucket, check_quota, count_in_bucket, hold_bucket
from peerd.store.files.checks import DANGER_OF_TOMBSTONE, request_checks
from peerd.store.records import columns_of, read_first, to_json, to_record
from peerd.store.schema.tables import file_buckets, file_chunks, file_copies, files
from peerd.store.schema.types import now, seconds_from_now

PUBLISH_TRIES: Final = 10
"""Tries of a put, where others of the same new key are faster."""
DANGER_OF_NEW: Final = 1


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A version whose content is on a disk.

    Attributes:
        id: chosen by the node that received the content.
        disk_id: where its first copy is.
        chunk_size: bytes of a chunk, where there are several.
        chunks: BLAKE3 of each chunk, one after the other.
        headers: that S3's clients gave it, and the checksums that were verified; see `StoredFile`.
        expires_in: seconds until it is deleted by itself; None: never.
    """

    id: int
    key: str
    class_name: str
    size: int
    blake3: str
    disk_id: int
    chunk_size: int = 0
    chunks: bytes = b""
    etag: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    expires_in: float | None = None


class Condition(msgspec.Struct, frozen=True):
    """What must be so for a put or a delete to be done.

    Attributes:
        is_absent: there must be no file of the key.
        tag: the current version's etag or BLAKE3 must be this one.
    """

    is_absent: bool = False
    tag: str | None = None


UNCONDITIONAL: Final = Condition()


FILE_COLUMNS: Final = columns_of(StoredFile, files, bucket=file_buckets.c.name, key=files.c.file_key)


def select_files(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The statement that reads versions as files."""
    return sa.select(*FILE_COLUMNS).join(file_buckets, file_buckets.c.id == files.c.bucket_id).where(*conditions)


_ARE_CURRENT: Final = (files.c.bucket_id == sa.bindparam("of_bucket"), files.c.is_current == 1)
_CURRENT: Final = select_files(*_ARE_CURRENT, files.c.file_key == sa.bindparam("key"))
_VERSION: Final = select_files(files.c.id == sa.bindparam("version"))
_ARE_OF_KEYS: Final = (*_ARE_CURRENT, files.c.file_key.in_(sa.bindparam("keys", expanding=True)))
_LOCKED: Final = (
    sa.select(*(column for column in FILE_COLUMNS if column.name != "bucket"))  # whose rows must not be locked
    .where(*_ARE_OF_KEYS)
    .order_by(files.c.file_key)
    .with_for_update()
)
_CURRENT_KEYS: Final = sa.select(files.c.file_key).where(*_ARE_OF_KEYS)
_BURY: Final = (
    sa.update(files)
    .where(files.c.id.in_(sa.bindparam("ids", expanding=True)))
    .values(state=FileState.DELETED.value, is_current=None, deleted_at=now(), expires_at=None)
)


def find_file(connection: Connection, bucket: Bucket, key: str) -> StoredFile | None:
    """The current version of a key, if there is one."""
    return read_first(connection, StoredFile, _CURRENT, {"of_bucket": bucket.id, "key": key})


def get_file(connection: Connection, bucket: Bucket, key: str) -> StoredFile:
    """The current version of a key.

    Raises:
        FileMissing: there is none.
    """
    found = find_file(connection, bucket, key)
    if found is None:
        raise FileMissing(bucket.name, key)
    return found


def get_version(connection: Connection, file_id: int) -> StoredFile | None:
    """A version by its id, in any state, if its row is there."""
    return read_first(connection, StoredFile, _VERSION, {"version": file_id})


def stage(connection: Connection, bucket: Bucket, new: NewFile) -> None:
    """Enter a version whose content is on its first disk, without making it current.

    Raises:
        FileMissing: the bucket was deleted meanwhile.
        QuotaExceeded: it does not fit into the bucket.
    """
    if not hold_bucket(connection, bucket.id):
        raise FileMissing(bucket.name, new.key)
    replaced = find_file(connection, bucket, new.key)
    check_quota(connection, bucket, new.size, 0 if replaced is None else replaced.size)
    values = {**row_of(new, bucket), "state": FileState.STAGED.value}
    if new.expires_in is not None:
        values["expires_at"] = seconds_from_now(new.expires_in)
    connection.execute(sa.insert(files).values(values))
    if new.chunks:
        connection.execute(sa.insert(file_chunks).values(chunks_of(new)))
    first = {"file_id": new.id, "disk_id": new.disk_id, "size": new.size, "state": CopyState.STORED.value}
    connection.execute(sa.insert(file_copies).values(**first, verified_at=now()))
    request_checks(connection, {new.id: DANGER_OF_NEW})


def stage_again(connection: Connection, file_id: int) -> None:
    """Begin the time anew in which a staged version can become current."""
    is_staged = files.c.id == file_id, files.c.state == FileState.STAGED.value
    connection.execute(sa.update(files).where(*is_staged).values(created_at=now()))


def row_of(new: NewFile, bucket: Bucket) -> dict[str, Any]:
    """The columns of a version that its put knows."""
    same = {name: getattr(new, name) for name in ("id", "class_name", "size", "blake3", "etag", "content_type")}
    texts = {"metadata": to_json(new.metadata), "headers": to_json(new.headers)}
    return {**same, **texts, "bucket_id": bucket.id, "file_key": new.key}


def chunks_of(new: NewFile) -> dict[str, Any]:
    """The row of the chunks of a content."""
    return {"file_id": new.id, "chunk_size": new.chunk_size, "hashes": new.chunks}


def delete_file(
    connection: Connection, bucket: Bucket, key: str, condition: Condition = UNCONDITIONAL
) -> StoredFile | None:
    """Make the current version of a key a tombstone; return it, or None if there is no file of the key.

    Raises:
        FileConditionFailed: the condition does not hold.
    """
    current = lock_current(connection, bucket, [key], [key]).get(key)
    if condition is not UNCONDITIONAL:
        check_condition(bucket.name, key, current, condition)
    if current is not None:
        _remove(connection, bucket.id, current.id, current.size)
    return current


def discard_staged(connection: Connection, file_id: int) -> None:
    """Make a version that was never current a tombstone: its put was not acknowledged."""
    is_staged = files.c.id == file_id, files.c.state == FileState.STAGED.value
    values = {"state": FileState.DELETED.value, "deleted_at": now(), "expires_at": None}
    if connection.execute(sa.update(files).where(*is_staged).values(values)).rowcount:
        request_checks(connection, {file_id: DANGER_OF_TOMBSTONE})


def move_file(connection: Connection, source: tuple[Bucket, str], target: tuple[Bucket, str]) -> StoredFile:
    """Give a file another key, or another bucket; a file that the target has becomes a tombstone. Contents stay.

    Raises:
        FileMissing: there is no such file.
        InvalidFile: the new key cannot be stored.
        QuotaExceeded: the other bucket has no room.
        FileConditionFailed: a file was put there in the same moment.
    """
    (bucket, key), (new_bucket, new_key) = source, target
    check_key(new_key)
    places = {(bucket.id, key): bucket, (new_bucket.id, new_key): new_bucket}
    locked = {place: lock_current(connection, places[place], [place[1]], [place[1]]) for place in sorted(places)}
    moved = locked[bucket.id, key].get(key)
    if moved is None:
        raise FileMissing(bucket.name, key)
    if (bucket.id, key) == (new_bucket.id, new_key):
        return moved
    replaced = locked[new_bucket.id, new_key].get(new_key)
    if bucket.id != new_bucket.id:
        check_quota(connection, new_bucket, moved.size, 0 if replaced is None else replaced.size)
        hold_bucket(connection, new_bucket.id)
    if replaced is not None:
        _remove(connection, new_bucket.id, replaced.id, replaced.size)
    values = {
        "bucket_id": new_bucket.id,
        "file_key": new_key,
        "version": (0 if replaced is None else replaced.version) + 1,
    }
    try:
        connection.execute(sa.update(files).where(files.c.id == moved.id).values(values))
    except IntegrityError as error:
        raise FileConditionFailed(new_bucket.name, new_key, "a file was put there in the same moment") from error
    count_in_bucket(connection, bucket.id, moved.id, -1, -moved.size)
    count_in_bucket(connection, new_bucket.id, moved.id, 1, moved.size)
    return get_file(connection, new_bucket, new_key)


def delete_expired(connection: Connection, limit: int) -> list[int]:
    """Make files whose time has come tombstones, at most ``limit``; return their ids."""
    due = sa.select(files.c.id).where(files.c.expires_at <= now()).order_by(files.c.expires_at).limit(limit)
    ids = sorted(connection.execute(due).scalars())
    is_due = files.c.id.in_(ids), files.c.expires_at <= now(), files.c.is_current == 1
    locked = sa.select(files.c.id, files.c.bucket_id, files.c.size).where(*is_due).order_by(files.c.id)
    expired = connection.execute(locked.with_for_update(skip_locked=True)).all()
    for file_id, bucket_id, size in expired:
        _remove(connection, bucket_id, file_id, size)
    return [row.id for row in expired]


def check_condition(bucket: str, key: str, current: StoredFile | None, condition: Condition) -> None:
    """Raise FileConditionFailed if a condition does not hold for the current version."""
    if condition.is_absent and current is not None:
        raise FileConditionFailed(bucket, key, "there is a file of this key")
    if condition.tag is None:
        return
    if current is None:
        raise FileConditionFailed(bucket, key, "there is no file of this key", is_missing=True)
    if condition.tag not in {current.etag, current.blake3}:
        raise FileConditionFailed(bucket, key, "the current version is another one")


def lock_current(
    connection: Connection, bucket: Bucket, keys: Sequence[str], judged: Collection[str]
) -> dict[str, StoredFile]:
    """Lock the current versions of keys. A new key cannot be locked: the index finds who was faster at the insert.

    Args:
        connection: in a transaction.
        bucket: of the keys.
        keys: whose versions are locked.
        judged: the keys that must have no version: this must not be judged by a row that was waited
            for and is not current any more, because another version is.

    Raises:
        DatabaseBusy: other puts of a judged key were faster again and again.
    """
    values = {"of_bucket": bucket.id, "keys": sorted(keys)}
    for _ in range(PUBLISH_TRIES):
        rows = connection.execute(_LOCKED, values).mappings()
        locked = {row["key"]: to_record(StoredFile, row, bucket=bucket.name) for row in rows}
        missing = sorted(set(judged) - locked.keys())
        if not missing or not connection.execute(_CURRENT_KEYS, {**values, "keys": missing}).all():
            return locked
    raise DatabaseBusy("other puts of the same key were faster", 0.0)


def bury(connection: Connection, file_ids: Sequence[int]) -> None:
    """Make current versions, whose rows are locked, tombstones; the caller counts them in their bucket."""
    connection.execute(_BURY, {"ids": file_ids})
    request_checks(connection, dict.fromkeys(file_ids, DANGER_OF_TOMBSTONE))


def _remove(connection: Connection, bucket_id: int, file_id: int, size: int) -> None:
    bury(connection, [file_id])
    count_in_bucket(connection, bucket_id, file_id, -1, -size)
