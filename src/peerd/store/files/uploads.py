"""Uploads in parts: their rows, until they are completed or aborted.

The parts of an upload of S3 are contents on one disk, each with a row. Rows of an upload are deleted in one
transaction, by one request: that which completes it, or that which aborts it. Resumable uploads, which have no such
parts, are rows of the same table, see `peerd.store.files.resumable_uploads`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.file_errors import BucketNotFound, UploadGone
from peerd.domain.files import DiskState, check_key
from peerd.store.files.buckets import Bucket, hold_bucket
from peerd.store.schema.tables import disks, file_buckets, file_completed_uploads, file_upload_parts, file_uploads
from peerd.store.schema.types import now, seconds_from_now

MAX_PAGE: Final = 1000


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that has not ended.

    Attributes:
        id: 32 hex digits.
        disk_id: which has the parts.
        class_name: of the file that it becomes.
        created_by: the access key, or the actor of a resumable upload.
        touched_at: when it was begun, or got its last part.
        content_id: what a resumable upload becomes; None: it is one of S3.
    """

    id: str
    bucket: str
    key: str
    disk_id: int
    class_name: str
    content_type: str | None = None
    metadata: dict[str, str] = {}
    headers: dict[str, str] = {}
    created_by: str | None = None
    created_at: datetime
    touched_at: datetime
    content_id: int | None = None


class NewUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that begins; see `Upload`."""

    id: str
    key: str
    disk_id: int
    class_name: str
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    created_by: str | None = None


class UploadedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an upload.

    Attributes:
        content_id: its content on the upload's disk.
        etag: the MD5 of its bytes, in hex.
        checksum: ALGORITHM:BASE64, if the client has sent one.
    """

    number: int
    content_id: int
    size: int
    etag: str
    checksum: str | None
    created_at: datetime


class UploadList(msgspec.Struct, frozen=True):
    """A page of uploads. ``next_after``: the key and the upload that the next page follows; None: this is the last."""

    uploads: list[Upload]
    prefixes: list[str]
    next_after: tuple[str, str] | None = None


_COLUMNS: Final = (
    file_buckets.c.name.label("bucket"),
    file_uploads.c.file_key.label("key"),
    *(file_uploads.c[field] for field in Upload.__struct_fields__ if field not in {"bucket", "key"}),
)
_OF_S3: Final = (file_uploads.c.content_id.is_(None), file_uploads.c.aborted_at.is_(None))
_PART_COLUMNS: Final = tuple(file_upload_parts.c[field] for field in UploadedPart.__struct_fields__)


def begin_upload(connection: Connection, bucket: Bucket, new: NewUpload) -> None:
    """Enter an upload. Raises InvalidFile for a key that cannot be stored, and BucketNotFound if it was deleted."""
    check_key(new.key)
    if not hold_bucket(connection, bucket.id):
        raise BucketNotFound(bucket.name, [])
    values = {
        "id": new.id,
        "bucket_id": bucket.id,
        "file_key": new.key,
        "disk_id": new.disk_id,
        "class_name": new.class_name,
        "content_type": new.content_type,
        "metadata": json.dumps(dict(new.metadata), ensure_ascii=False) if new.metadata else None,
        "headers": json.dumps(dict(new.headers), ensure_ascii=False) if new.headers else None,
        "created_by": new.created_by,
    }
    connection.execute(sa.insert(file_uploads).values(values))


def find_upload(connection: Connection, upload_id: str) -> Upload | None:
    """The upload of S3 of this id, if it has not ended."""
    row = connection.execute(_select(file_uploads.c.id == upload_id, *_OF_S3)).mappings().first()
    return None if row is None else _to_upload(row)


def add_part(connection: Connection, upload_id: str, part: Mapping[str, Any]) -> int | None:
    """Enter a part, in the place of one that has its number; return the content of that one.

    Args:
        connection: in a transaction.
        upload_id: of the upload.
        part: the columns number, content_id, size, etag and checksum.

    Raises:
        UploadGone: it was completed or aborted.
    """
    _hold(connection, upload_id)
    is_it = file_upload_parts.c.upload_id == upload_id, file_upload_parts.c.number == part["number"]
    earlier = connection.execute(sa.select(file_upload_parts.c.content_id).where(*is_it)).scalar()
    if earlier is None:
        connection.execute(sa.insert(file_upload_parts).values(upload_id=upload_id, **part))
    else:
        connection.execute(sa.update(file_upload_parts).where(*is_it).values(**part, created_at=now()))
    connection.execute(sa.update(file_uploads).where(file_uploads.c.id == upload_id).values(touched_at=now()))
    return earlier


def list_parts(
    connection: Connection, upload_id: str, *, after: int = 0, limit: int | None = None
) -> list[UploadedPart]:
    """The parts of an upload whose numbers follow ``after``, in their order."""
    found = sa.select(*_PART_COLUMNS).where(
        file_upload_parts.c.upload_id == upload_id, file_upload_parts.c.number > after
    )
    rows = connection.execute(found.order_by(file_upload_parts.c.number).limit(limit)).mappings()
    return [UploadedPart(**row) for row in rows]


def bytes_of_uploads(connection: Connection, bucket_id: int) -> int:
    """The bytes of all parts in a bucket, and of what was received of its resumable uploads."""
    joined = sa.select(sa.func.sum(file_upload_parts.c.size)).join(
        file_uploads, file_uploads.c.id == file_upload_parts.c.upload_id
    )
    received = sa.select(sa.func.sum(file_uploads.c.received))
    is_its = file_uploads.c.bucket_id == bucket_id
    return sum(int(connection.execute(one.where(is_its)).scalar() or 0) for one in (joined, received))


def end_upload(connection: Connection, upload_id: str) -> list[int]:
    """Delete the rows of an upload; return the contents of its parts.

    Raises:
        UploadGone: it was completed before, or ended.
    """
    _hold(connection, upload_id, with_aborted=True)
    are_its = file_upload_parts.c.upload_id == upload_id
    contents = list(connection.execute(sa.select(file_upload_parts.c.content_id).where(are_its)).scalars())
    connection.execute(sa.delete(file_upload_parts).where(are_its))
    connection.execute(sa.delete(file_uploads).where(file_uploads.c.id == upload_id))
    return contents


def end_uploads(connection: Connection, bucket: Bucket) -> list[tuple[int, list[int]]]:
    """Delete the rows of all uploads of S3 of a bucket; return the disk of each, and the contents of its parts."""
    found = sa.select(file_uploads.c.id, file_uploads.c.disk_id).where(file_uploads.c.bucket_id == bucket.id, *_OF_S3)
    rows = connection.execute(found.order_by(file_uploads.c.id)).all()
    return [(disk_id, end_upload(connection, upload_id)) for upload_id, disk_id in rows]


class CompletedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that was completed lately; ``etag`` is the ETag of the object that it became."""

    id: str
    bucket: str
    key: str
    etag: str


def complete_upload(connection: Connection, upload_id: str, etag: str) -> list[int]:
    """As `end_upload`, and keep what is answered when the client completes it again."""
    _hold(connection, upload_id)
    columns = ("id", "bucket_id", "file_key")
    found = sa.select(*(file_uploads.c[name] for name in columns)).where(file_uploads.c.id == upload_id)
    values = dict(connection.execute(found).mappings().one())
    connection.execute(sa.insert(file_completed_uploads).values(**values, etag=etag))
    return end_upload(connection, upload_id)


def find_completed_upload(connection: Connection, upload_id: str) -> CompletedUpload | None:
    """The upload of this id, if it was completed within the time for which this is kept."""
    columns = (
        file_completed_uploads.c.id,
        file_buckets.c.name.label("bucket"),
        file_completed_uploads.c.file_key.label("key"),
        file_completed_uploads.c.etag,
    )
    joined = sa.select(*columns).join(file_buckets, file_buckets.c.id == file_completed_uploads.c.bucket_id)
    row = connection.execute(joined.where(file_completed_uploads.c.id == upload_id)).mappings().first()
    return None if row is None else CompletedUpload(**row)


def forget_completed_uploads(connection: Connection, age: float, limit: int) -> int:
    """Delete the rows of uploads that were completed longer ago than so many seconds; return how many."""
    old = sa.select(file_completed_uploads.c.id).where(file_completed_uploads.c.completed_at < seconds_from_now(-age))
    ids = list(connection.execute(old.order_by(file_completed_uploads.c.completed_at).limit(limit)).scalars())
    connection.execute(sa.delete(file_completed_uploads).where(file_completed_uploads.c.id.in_(ids)))
    return len(ids)


def list_uploads(
    connection: Connection,
    bucket: Bucket,
    *,
    prefix: str = "",
    after: tuple[str, str | None] = ("", None),
    delimiter: str = "",
    limit: int = MAX_PAGE,
) -> UploadList:
    """A page of the uploads of S3 of a bucket, by key and id.

    Args:
        connection: of a read.
        bucket: whose uploads are listed.
        prefix: what keys begin with.
        after: the key that the page follows; with an id, uploads of the same key that follow it are listed too.
        delimiter: keys that have it after the prefix are one entry of ``prefixes`` together.
        limit: the most entries, uploads and prefixes.
    """
    page = UploadList([], [])
    last: tuple[str, str] | None = None
    skipped = after[0] if delimiter and after[0].endswith(delimiter) and after[0] > prefix else None
    key, upload_id = after
    while True:
        rows = _rows_after(connection, bucket, prefix, key, upload_id)
        for upload in rows:
            key, upload_id = upload.key, upload.id
            common = _common_prefix(upload.key, prefix, delimiter)
            if (common is not None and common == skipped) or (page.prefixes and common == page.prefixes[-1]):
                continue
            if len(page.uploads) + len(page.prefixes) >= limit:
                return UploadList(page.uploads, page.prefixes, last)
            if common is not None:
                page.prefixes.append(common)
                last = (common, "")
            else:
                page.uploads.append(upload)
                last = (upload.key, upload.id)
        if len(rows) < MAX_PAGE:
            return page


def stale_uploads(connection: Connection, disk_ids: Sequence[int], age: float, limit: int) -> list[Upload]:
    """Uploads that were not touched for so many seconds, and whose parts are on one of these disks, or on none."""
    is_old = file_uploads.c.touched_at < seconds_from_now(-age)
    return _uploads_on(connection, disk_ids, is_old, file_uploads.c.touched_at, limit)


def aborted_uploads(connection: Connection, disk_ids: Sequence[int], limit: int) -> list[Upload]:
    """Uploads that were aborted, and whose bytes are still on one of these disks, or on none."""
    return _uploads_on(connection, disk_ids, file_uploads.c.aborted_at.is_not(None), file_uploads.c.aborted_at, limit)


def _uploads_on(
    connection: Connection,
    disk_ids: Sequence[int],
    condition: sa.ColumnElement[bool],
    order: sa.ColumnElement[Any],
    limit: int,
) -> list[Upload]:
    is_here = sa.or_(file_uploads.c.disk_id.in_(disk_ids), disks.c.id.is_(None), disks.c.state == DiskState.LOST.value)
    joined = _select(condition, is_here).outerjoin(disks, disks.c.id == file_uploads.c.disk_id)
    return [_to_upload(row) for row in connection.execute(joined.order_by(order).limit(limit)).mappings()]


def _rows_after(connection: Connection, bucket: Bucket, prefix: str, key: str, upload_id: str | None) -> list[Upload]:
    follows = file_uploads.c.file_key > key
    if upload_id is not None:
        follows = sa.or_(follows, sa.and_(file_uploads.c.file_key == key, file_uploads.c.id > upload_id))
    if prefix > key:
        follows = file_uploads.c.file_key >= prefix
    found = _select(file_uploads.c.bucket_id == bucket.id, follows, *_OF_S3)
    found = found.order_by(file_uploads.c.file_key, file_uploads.c.id)
    rows = [_to_upload(row) for row in connection.execute(found.limit(MAX_PAGE)).mappings()]
    return rows if not rows or rows[-1].key.startswith(prefix) else [one for one in rows if one.key.startswith(prefix)]


def _common_prefix(key: str, prefix: str, delimiter: str) -> str | None:
    at = key.find(delimiter, len(prefix)) if delimiter else -1
    return None if at < 0 else key[: at + len(delimiter)]


def _hold(connection: Connection, upload_id: str, *, with_aborted: bool = False) -> None:
    held = sa.select(file_uploads.c.aborted_at).where(file_uploads.c.id == upload_id).with_for_update()
    found = connection.execute(held).first()
    if found is None or (found.aborted_at is not None and not with_aborted):
        raise UploadGone(upload_id)


def _select(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(*_COLUMNS).join(file_buckets, file_buckets.c.id == file_uploads.c.bucket_id).where(*conditions)


def _to_upload(row: RowMapping) -> Upload:
    values = dict(row)
    for name in ("metadata", "headers"):
        values[name] = json.loads(values[name]) if values[name] else {}
    return Upload(**values)
