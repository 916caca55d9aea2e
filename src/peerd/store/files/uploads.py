"""Uploads in parts: their rows, until they are completed or aborted.

The parts of an upload of S3 are contents on one disk, each with a row. A resumable upload is one part of a content, to
whose end each of its parts is appended: its row says how many bytes are durable, and a part is accepted when it begins
there. `peerd.store.files.listing` lists both.

Rows of an upload are deleted in one transaction, by one request: that which completes it, or that which aborts it. A
resumable upload that is aborted keeps its row until a node has removed its bytes; for all else it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from peerd.domain.file_errors import BucketNotFound, QuotaExceeded, UploadGone, UploadPositionDiffers
from peerd.domain.files import StoredFile, check_key
from peerd.store.files.buckets import Bucket, bucket_usage, get_bucket, hold_bucket
from peerd.store.files.versions import UNCONDITIONAL, Condition, check_condition, find_file, get_version
from peerd.store.records import columns_of, read_all, read_first, to_json
from peerd.store.schema.tables import file_buckets, file_completed_uploads, file_upload_parts, file_uploads
from peerd.store.schema.types import now, seconds_from_now

_CONTENT: Final = re.compile("[0-9a-f]{16}")
"""What is kept of a completed upload: the id of its content, and of one of S3 an ETag, which has other digits."""
ABSENT: Final = "*"
"""The condition that there is no file of the key."""


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that has not ended.

    Attributes:
        id: 32 hex digits.
        disk_id: which has its bytes.
        class_name: of the file that it becomes.
        created_by: the access key, or the actor of a resumable upload.
        touched_at: when it was begun, or got its last part.
        content_id: what a resumable upload becomes; None: it is one of S3.
        size: bytes of a resumable upload, if they are known.
        received: bytes of it that are durable.
        source: by which its client finds it again.
        expires_in: seconds after its completion when the file is removed by itself; None: never.
        put_condition: `ABSENT`, or the tag that the current version must have; None: there is none.
    """

    id: str
    bucket: str
    key: str
    disk_id: int
    class_name: str
    content_type: str | None
    metadata: dict[str, str]
    headers: dict[str, str]
    created_by: str | None
    created_at: datetime
    touched_at: datetime
    content_id: int | None
    size: int | None
    received: int
    source: str | None
    expires_in: float | None
    put_condition: str | None

    @property
    def content(self) -> int:
        """The id of what a resumable upload becomes."""
        assert self.content_id is not None
        return self.content_id

    @property
    def condition(self) -> Condition:
        """What must be so for its completion."""
        if self.put_condition is None:
            return UNCONDITIONAL
        if self.put_condition == ABSENT:
            return Condition(is_absent=True)
        return Condition(tag=self.put_condition)


class NewUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that begins; see `Upload`."""

    id: str
    key: str
    disk_id: int
    class_name: str
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    content_id: int | None = None
    size: int | None = None
    source: str | None = None
    expires_in: float | None = None
    condition: Condition = UNCONDITIONAL
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


class CompletedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that was completed lately; ``etag`` is the ETag of the object that it became."""

    id: str
    bucket: str
    key: str
    etag: str


SELECT: Final = sa.select(
    *columns_of(Upload, file_uploads, bucket=file_buckets.c.name, key=file_uploads.c.file_key)
).join(file_buckets, file_buckets.c.id == file_uploads.c.bucket_id)
IS_ALIVE: Final = file_uploads.c.aborted_at.is_(None)
IS_OF_S3: Final = (file_uploads.c.content_id.is_(None), IS_ALIVE)
_IS_RESUMABLE: Final = (file_uploads.c.content_id.is_not(None), IS_ALIVE)


def enter_upload(connection: Connection, bucket: Bucket, new: NewUpload) -> None:
    """Enter an upload.

    Raises:
        InvalidFile: the key cannot be stored.
        BucketNotFound: the bucket was deleted.
        QuotaExceeded: a resumable upload does not fit into the bucket.
        FileConditionFailed: its condition does not hold now.
    """
    check_key(new.key)
    if not hold_bucket(connection, bucket.id):
        raise BucketNotFound(bucket.name, [])
    if new.condition != UNCONDITIONAL:
        check_condition(bucket.name, new.key, find_file(connection, bucket, new.key), new.condition)
    if new.content_id is not None:
        _check_quota(connection, bucket, new.key, new.size or 0)
    values = msgspec.structs.asdict(new)
    del values["condition"]
    values |= {"bucket_id": bucket.id, "file_key": values.pop("key")}
    values |= {"metadata": to_json(new.metadata), "headers": to_json(new.headers)}
    values["put_condition"] = ABSENT if new.condition.is_absent else new.condition.tag
    connection.execute(sa.insert(file_uploads).values(values))


def find_upload(connection: Connection, upload_id: str) -> Upload | None:
    """The upload of S3 of this id, if it has not ended."""
    return read_first(connection, Upload, SELECT.where(file_uploads.c.id == upload_id, *IS_OF_S3))


def get_resumable(connection: Connection, upload_id: str) -> Upload:
    """The resumable upload of this id. Raises UploadGone if it was completed or aborted."""
    found = read_first(connection, Upload, SELECT.where(file_uploads.c.id == upload_id, *_IS_RESUMABLE))
    if found is None:
        raise UploadGone(upload_id)
    return found


def uploads_of_key(connection: Connection, bucket: Bucket, key: str) -> list[Upload]:
    """The resumable uploads of a key that have not ended, the one with the most bytes first."""
    is_its = file_uploads.c.bucket_id == bucket.id, file_uploads.c.file_key == key
    ordered = (file_uploads.c.received.desc(), file_uploads.c.id)
    return read_all(connection, Upload, SELECT.where(*is_its, *_IS_RESUMABLE).order_by(*ordered))


def add_part(connection: Connection, upload_id: str, part: Mapping[str, Any]) -> int | None:
    """Enter a part of an upload of S3, in the place of one that has its number; return the content of that one.

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
    follow = file_upload_parts.c.upload_id == upload_id, file_upload_parts.c.number > after
    found = sa.select(*columns_of(UploadedPart, file_upload_parts)).where(*follow)
    return read_all(connection, UploadedPart, found.order_by(file_upload_parts.c.number).limit(limit))


def advance_upload(connection: Connection, upload_id: str, offset: int, count: int) -> int:
    """Bytes behind those that were durable are durable, too; return how many there are now.

    Args:
        connection: in a transaction.
        upload_id: of the upload, a resumable one.
        offset: where they begin.
        count: how many.

    Raises:
        UploadGone: it was completed or aborted.
        UploadPositionDiffers: they do not begin where the durable bytes end.
        QuotaExceeded: they do not fit into the bucket.
    """
    received = _hold(connection, upload_id).received
    if received != offset:
        raise UploadPositionDiffers(upload_id, offset, received)
    upload = get_resumable(connection, upload_id)
    _check_quota(connection, get_bucket(connection, upload.bucket), upload.key, count)
    changed = sa.update(file_uploads).where(file_uploads.c.id == upload_id)
    connection.execute(changed.values(received=offset + count, touched_at=now()))
    return offset + count


def bytes_with_uploads(connection: Connection, bucket_id: int) -> int:
    """The bytes of the files of a bucket, of all parts of its uploads, and of what was received of resumable ones."""
    of_parts = sa.select(sa.func.sum(file_upload_parts.c.size)).join(
        file_uploads, file_uploads.c.id == file_upload_parts.c.upload_id
    )
    received = sa.select(sa.func.sum(file_uploads.c.received))
    is_its = file_uploads.c.bucket_id == bucket_id
    sums = (int(connection.execute(one.where(is_its)).scalar() or 0) for one in (of_parts, received))
    return bucket_usage(connection, bucket_id).bytes + sum(sums)


def _check_quota(connection: Connection, bucket: Bucket, key: str, size: int) -> None:
    """Raise QuotaExceeded if so many bytes do not fit beside all files, and all that was received of uploads."""
    if bucket.quota is None:
        return
    replaced = find_file(connection, bucket, key)
    used = bytes_with_uploads(connection, bucket.id)
    if used - (0 if replaced is None else replaced.size) + size > bucket.quota:
        raise QuotaExceeded(bucket.name, bucket.quota, used, size)


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
    found = sa.select(file_uploads.c.id, file_uploads.c.disk_id).where(file_uploads.c.bucket_id == bucket.id, *IS_OF_S3)
    rows = connection.execute(found.order_by(file_uploads.c.id)).all()
    return [(disk_id, end_upload(connection, upload_id)) for upload_id, disk_id in rows]


def complete_upload(connection: Connection, upload_id: str, etag: str) -> list[int]:
    """End an upload (`end_upload`), and keep what is answered when the client completes it again."""
    _hold(connection, upload_id)
    columns = ("id", "bucket_id", "file_key")
    found = sa.select(*(file_uploads.c[name] for name in columns)).where(file_uploads.c.id == upload_id)
    values = dict(connection.execute(found).mappings().one())
    connection.execute(sa.insert(file_completed_uploads).values(**values, etag=etag))
    return end_upload(connection, upload_id)


def find_completed_upload(connection: Connection, upload_id: str) -> CompletedUpload | None:
    """The upload of this id, if it was completed within the time for which this is kept."""
    others = {"bucket": file_buckets.c.name, "key": file_completed_uploads.c.file_key}
    found = sa.select(*columns_of(CompletedUpload, file_completed_uploads, **others))
    joined = found.join(file_buckets, file_buckets.c.id == file_completed_uploads.c.bucket_id)
    return read_first(connection, CompletedUpload, joined.where(file_completed_uploads.c.id == upload_id))


def find_completed_version(connection: Connection, upload_id: str) -> StoredFile | None:
    """The version that an upload became within the last week, in any state; None for one of S3."""
    found = find_completed_upload(connection, upload_id)
    if found is None or not _CONTENT.fullmatch(found.etag):
        return None
    return get_version(connection, int(found.etag, 16))


def forget_completed_uploads(connection: Connection, age: float, limit: int) -> int:
    """Delete the rows of uploads that were completed longer ago than so many seconds; return how many."""
    old = sa.select(file_completed_uploads.c.id).where(file_completed_uploads.c.completed_at < seconds_from_now(-age))
    ids = list(connection.execute(old.order_by(file_completed_uploads.c.completed_at).limit(limit)).scalars())
    connection.execute(sa.delete(file_completed_uploads).where(file_completed_uploads.c.id.in_(ids)))
    return len(ids)


def mark_aborted(connection: Connection, upload_id: str) -> None:
    """Abort a resumable upload: nothing is added to it from now on, and a node removes its bytes, and then its row.

    Raises:
        UploadGone: it was completed or aborted before.
    """
    alive = sa.update(file_uploads).where(file_uploads.c.id == upload_id, IS_ALIVE)
    if not connection.execute(alive.values(aborted_at=now())).rowcount:
        raise UploadGone(upload_id)


def _hold(connection: Connection, upload_id: str, *, with_aborted: bool = False) -> Row[Any, Any]:
    """Lock the row of an upload. Raises UploadGone if it has ended."""
    columns = file_uploads.c.aborted_at, file_uploads.c.received
    found = connection.execute(sa.select(*columns).where(file_uploads.c.id == upload_id).with_for_update()).first()
    if found is None or (found.aborted_at is not None and not with_aborted):
        raise UploadGone(upload_id)
    return found
