"""Resumable uploads: their rows, until they are completed or aborted.

The bytes of such an upload are one part of a content, to whose end each part of the upload is appended. So an upload
is one row, which says how many bytes are durable, and none for each part: a part is accepted when it begins there.

An upload that is aborted keeps its row until a node has removed its bytes; for all else it is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.file_errors import BucketNotFound, QuotaExceeded, UploadGone, UploadPositionDiffers
from peerd.domain.files import StoredFile, check_key
from peerd.store.files.buckets import Bucket, bucket_usage, get_bucket, hold_bucket
from peerd.store.files.uploads import MAX_PAGE, bytes_of_uploads, find_completed_upload
from peerd.store.files.versions import UNCONDITIONAL, Condition, check_condition, find_file, get_version
from peerd.store.schema.tables import file_buckets, file_upload_parts, file_uploads
from peerd.store.schema.types import now

_CONTENT: Final = re.compile("[0-9a-f]{16}")
"""What is kept of a completed upload: the id of its content, and of one of S3 an ETag, which has other digits."""
ABSENT: Final = "*"
"""The condition that there is no file of the key."""


class ResumableUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that has not ended.

    Attributes:
        id: 32 hex digits.
        disk_id: which has its bytes.
        content_id: that it becomes.
        class_name: of the file that it becomes.
        size: bytes of the whole, if they are known.
        received: bytes that are durable.
        source: by which its client finds it again.
        expires_in: seconds after its completion when the file is removed by itself; None: never.
        put_condition: `ABSENT`, or the tag that the current version must have; None: there is none.
        created_by: the actor.
        touched_at: when it was begun, or got its last part.
    """

    id: str
    bucket: str
    key: str
    disk_id: int
    content_id: int
    class_name: str
    content_type: str | None = None
    metadata: dict[str, str] = {}
    size: int | None = None
    received: int = 0
    source: str | None = None
    expires_in: float | None = None
    put_condition: str | None = None
    created_by: str | None = None
    created_at: datetime
    touched_at: datetime

    @property
    def condition(self) -> Condition:
        """What must be so for its completion."""
        if self.put_condition is None:
            return UNCONDITIONAL
        if self.put_condition == ABSENT:
            return Condition(is_absent=True)
        return Condition(tag=self.put_condition)


class NewResumableUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that begins; see `ResumableUpload`."""

    id: str
    key: str
    disk_id: int
    content_id: int
    class_name: str
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    size: int | None = None
    source: str | None = None
    expires_in: float | None = None
    condition: Condition = UNCONDITIONAL
    created_by: str | None = None


class UnfinishedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that has not ended, of a client of peerd or of S3.

    Attributes:
        id: 32 hex digits.
        disk: which has its bytes.
        size: bytes of the whole, if they are known.
        received: bytes that are durable.
        by: the actor, or the access key.
        is_of_s3: whether it is one of S3.
        touched_at: when it was begun, or got its last part.
    """

    id: str
    bucket: str
    key: str
    disk: int
    size: int | None
    received: int
    by: str | None
    is_of_s3: bool
    created_at: datetime
    touched_at: datetime


class UnfinishedUploads(msgspec.Struct, frozen=True):
    """A page of uploads. ``next_after``: the id that the next page follows; None: this is the last."""

    uploads: list[UnfinishedUpload]
    next_after: str | None = None


_COLUMNS: Final = (
    file_buckets.c.name.label("bucket"),
    file_uploads.c.file_key.label("key"),
    *(file_uploads.c[field] for field in ResumableUpload.__struct_fields__ if field not in {"bucket", "key"}),
)
_LISTED: Final = (
    file_uploads.c.file_key.label("key"),
    *(file_uploads.c[name] for name in ("id", "bucket_id", "disk_id", "size", "received", "created_by", "content_id")),
    file_uploads.c.created_at,
    file_uploads.c.touched_at,
)
_IS_ALIVE: Final = file_uploads.c.aborted_at.is_(None)


def begin_resumable(connection: Connection, bucket: Bucket, new: NewResumableUpload) -> None:
    """Enter an upload.

    Raises:
        InvalidFile: the key cannot be stored.
        BucketNotFound: the bucket was deleted.
        QuotaExceeded: it does not fit into the bucket.
        FileConditionFailed: its condition does not hold now.
    """
    check_key(new.key)
    if not hold_bucket(connection, bucket.id):
        raise BucketNotFound(bucket.name, [])
    if new.condition != UNCONDITIONAL:
        check_condition(bucket.name, new.key, find_file(connection, bucket, new.key), new.condition)
    _check_quota(connection, bucket, new.key, new.size or 0)
    values = {
        "id": new.id,
        "bucket_id": bucket.id,
        "file_key": new.key,
        "disk_id": new.disk_id,
        "content_id": new.content_id,
        "class_name": new.class_name,
        "content_type": new.content_type,
        "metadata": json.dumps(dict(new.metadata), ensure_ascii=False) if new.metadata else None,
        "size": new.size,
        "source": new.source,
        "expires_in": new.expires_in,
        "put_condition": ABSENT if new.condition.is_absent else new.condition.tag,
        "created_by": new.created_by,
    }
    connection.execute(sa.insert(file_uploads).values(values))


def get_resumable(connection: Connection, upload_id: str) -> ResumableUpload:
    """The upload of this id. Raises UploadGone if it was completed or aborted."""
    row = connection.execute(_select(file_uploads.c.id == upload_id)).mappings().first()
    if row is None:
        raise UploadGone(upload_id)
    return _to_upload(row)


def uploads_of_key(connection: Connection, bucket: Bucket, key: str) -> list[ResumableUpload]:
    """The uploads of a key that have not ended, the one with the most bytes first."""
    found = _select(file_uploads.c.bucket_id == bucket.id, file_uploads.c.file_key == key)
    ordered = found.order_by(file_uploads.c.received.desc(), file_uploads.c.id)
    return [_to_upload(row) for row in connection.execute(ordered).mappings()]


def advance_upload(connection: Connection, upload_id: str, offset: int, count: int) -> int:
    """Bytes behind those that were durable are durable, too; return how many there are now.

    Args:
        connection: in a transaction.
        upload_id: of the upload.
        offset: where they begin.
        count: how many.

    Raises:
        UploadGone: it was completed or aborted.
        UploadPositionDiffers: they do not begin where the durable bytes end.
        QuotaExceeded: they do not fit into the bucket.
    """
    held = connection.execute(
        sa.select(file_uploads.c.received).where(file_uploads.c.id == upload_id, _IS_ALIVE).with_for_update()
    ).first()
    if held is None:
        raise UploadGone(upload_id)
    if held.received != offset:
        raise UploadPositionDiffers(upload_id, offset, held.received)
    upload = get_resumable(connection, upload_id)
    _check_quota(connection, get_bucket(connection, upload.bucket), upload.key, count)
    changed = sa.update(file_uploads).where(file_uploads.c.id == upload_id)
    connection.execute(changed.values(received=offset + count, touched_at=now()))
    return offset + count


def find_completed_version(connection: Connection, upload_id: str) -> StoredFile | None:
    """The version that an upload became within the last week, whatever its state; None for one of S3."""
    found = find_completed_upload(connection, upload_id)
    if found is None or not _CONTENT.fullmatch(found.etag):
        return None
    return get_version(connection, int(found.etag, 16))


def mark_aborted(connection: Connection, upload_id: str) -> None:
    """Abort an upload: nothing is added to it from now on, and a node removes its bytes, and then its row.

    Raises:
        UploadGone: it was completed or aborted before.
    """
    alive = sa.update(file_uploads).where(file_uploads.c.id == upload_id, _IS_ALIVE)
    if not connection.execute(alive.values(aborted_at=now())).rowcount:
        raise UploadGone(upload_id)


def list_unfinished(
    connection: Connection, bucket: Bucket | None, prefix: str, after: str, limit: int
) -> UnfinishedUploads:
    """A page of the uploads that have not ended, of S3 too, in the order of their ids.

    Args:
        connection: of a read.
        bucket: only its uploads; None: those of all.
        prefix: what the keys begin with.
        after: the id that the page follows.
        limit: uploads at the most.
    """
    found = sa.select(*_LISTED).where(_IS_ALIVE).order_by(file_uploads.c.id)
    if bucket is not None:
        found = found.where(file_uploads.c.bucket_id == bucket.id, file_uploads.c.file_key >= prefix)
    rows: list[RowMapping] = []
    while True:
        batch = connection.execute(found.where(file_uploads.c.id > after).limit(MAX_PAGE)).mappings().all()
        rows += [row for row in batch if row["key"].startswith(prefix)]
        if len(rows) > limit:
            page = _to_unfinished(connection, rows[:limit])
            return UnfinishedUploads(page, page[-1].id)
        if len(batch) < MAX_PAGE:
            return UnfinishedUploads(_to_unfinished(connection, rows))
        after = batch[-1]["id"]


def _to_unfinished(connection: Connection, rows: Sequence[RowMapping]) -> list[UnfinishedUpload]:
    """Uploads with the names of their buckets, and the bytes of the parts of those of S3."""
    of_ids = file_buckets.c.id.in_({row["bucket_id"] for row in rows})
    named = connection.execute(sa.select(file_buckets.c.id, file_buckets.c.name).where(of_ids)).all()
    buckets = {row[0]: row[1] for row in named}
    is_of_s3 = [row["id"] for row in rows if row["content_id"] is None]
    of_parts = sa.select(file_upload_parts.c.upload_id, sa.func.sum(file_upload_parts.c.size))
    of_parts = of_parts.where(file_upload_parts.c.upload_id.in_(is_of_s3)).group_by(file_upload_parts.c.upload_id)
    parts = {row[0]: row[1] for row in connection.execute(of_parts)} if is_of_s3 else {}
    return [
        UnfinishedUpload(
            id=row["id"],
            bucket=buckets[row["bucket_id"]],
            key=row["key"],
            disk=row["disk_id"],
            size=row["size"],
            received=row["received"] + int(parts.get(row["id"], 0)),
            by=row["created_by"],
            is_of_s3=row["content_id"] is None,
            created_at=row["created_at"],
            touched_at=row["touched_at"],
        )
        for row in rows
        if row["bucket_id"] in buckets
    ]


def find_unfinished(connection: Connection, upload_id: str) -> tuple[str, str] | None:
    """The bucket and the key of an upload that has not ended, of S3 too."""
    columns = file_buckets.c.name, file_uploads.c.file_key
    found = sa.select(*columns).join(file_uploads, file_uploads.c.bucket_id == file_buckets.c.id)
    row = connection.execute(found.where(file_uploads.c.id == upload_id, _IS_ALIVE)).first()
    return None if row is None else (row[0], row[1])


def quota_exceeded(connection: Connection, name: str, size: int) -> QuotaExceeded | None:
    """The error of so many bytes that did not fit into a bucket; None: it has no quota now."""
    bucket = get_bucket(connection, name)
    if bucket.quota is None:
        return None
    used = bucket_usage(connection, bucket.id).bytes + bytes_of_uploads(connection, bucket.id)
    return QuotaExceeded(name, bucket.quota, used, size)


def _check_quota(connection: Connection, bucket: Bucket, key: str, size: int) -> None:
    """Raise QuotaExceeded if so many bytes do not fit beside all files, and all that was received of uploads."""
    if bucket.quota is None:
        return
    replaced = find_file(connection, bucket, key)
    used = bucket_usage(connection, bucket.id).bytes + bytes_of_uploads(connection, bucket.id)
    if used - (0 if replaced is None else replaced.size) + size > bucket.quota:
        raise QuotaExceeded(bucket.name, bucket.quota, used, size)


def _select(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    is_resumable = file_uploads.c.content_id.is_not(None)
    joined = sa.select(*_COLUMNS).join(file_buckets, file_buckets.c.id == file_uploads.c.bucket_id)
    return joined.where(is_resumable, _IS_ALIVE, *conditions)


def _to_upload(row: RowMapping) -> ResumableUpload:
    values = dict(row)
    values["metadata"] = json.loads(values["metadata"]) if values["metadata"] else {}
    return ResumableUpload(**values)
