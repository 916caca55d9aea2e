"""Lists of uploads that have not ended: by key and prefix as S3 has them, of all kinds by id, and the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.files import DiskState
from peerd.store.files.buckets import Bucket, list_buckets
from peerd.store.files.listing import MAX_PAGE, common_prefix
from peerd.store.files.uploads import IS_ALIVE, IS_OF_S3, SELECT, Upload
from peerd.store.records import read_all, to_record
from peerd.store.schema.tables import disks, file_buckets, file_upload_parts, file_uploads
from peerd.store.schema.types import seconds_from_now


class UploadList(msgspec.Struct, frozen=True):
    """A page of uploads. ``next_after``: the key and the upload that the next page follows; None: this is the last."""

    uploads: list[Upload]
    prefixes: list[str]
    next_after: tuple[str, str] | None = None


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
            common = common_prefix(upload.key, prefix, delimiter)
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


def _rows_after(connection: Connection, bucket: Bucket, prefix: str, key: str, upload_id: str | None) -> list[Upload]:
    follows = file_uploads.c.file_key > key
    if upload_id is not None:
        follows = sa.or_(follows, sa.and_(file_uploads.c.file_key == key, file_uploads.c.id > upload_id))
    if prefix > key:
        follows = file_uploads.c.file_key >= prefix
    found = SELECT.where(file_uploads.c.bucket_id == bucket.id, follows, *IS_OF_S3)
    found = found.order_by(file_uploads.c.file_key, file_uploads.c.id).limit(MAX_PAGE)
    return [upload for upload in read_all(connection, Upload, found) if upload.key.startswith(prefix)]


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
    joined = SELECT.outerjoin(disks, disks.c.id == file_uploads.c.disk_id).where(condition, is_here)
    return read_all(connection, Upload, joined.order_by(order).limit(limit))


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
    found = sa.select(file_uploads).where(IS_ALIVE).order_by(file_uploads.c.id)
    if bucket is not None:
        found = found.where(file_uploads.c.bucket_id == bucket.id, file_uploads.c.file_key >= prefix)
    rows: list[RowMapping] = []
    while True:
        batch = connection.execute(found.where(file_uploads.c.id > after).limit(MAX_PAGE)).mappings().all()
        rows += [row for row in batch if row["file_key"].startswith(prefix)]
        if len(rows) > limit:
            page = _to_unfinished(connection, rows[:limit])
            return UnfinishedUploads(page, page[-1].id)
        if len(batch) < MAX_PAGE:
            return UnfinishedUploads(_to_unfinished(connection, rows))
        after = batch[-1]["id"]


def _to_unfinished(connection: Connection, rows: Sequence[RowMapping]) -> list[UnfinishedUpload]:
    """Uploads with the names of their buckets, and the bytes of the parts of those of S3."""
    buckets = {bucket.id: bucket.name for bucket in list_buckets(connection)}
    are_of_s3 = file_upload_parts.c.upload_id.in_([row["id"] for row in rows if row["content_id"] is None])
    of_parts = sa.select(file_upload_parts.c.upload_id, sa.func.sum(file_upload_parts.c.size)).where(are_of_s3)
    parts = {row[0]: int(row[1]) for row in connection.execute(of_parts.group_by(file_upload_parts.c.upload_id))}
    return [
        to_record(
            UnfinishedUpload,
            row,
            bucket=buckets[row["bucket_id"]],
            key=row["file_key"],
            disk=row["disk_id"],
            received=row["received"] + parts.get(row["id"], 0),
            by=row["created_by"],
            is_of_s3=row["content_id"] is None,
        )
        for row in rows
        if row["bucket_id"] in buckets
    ]


def find_unfinished(connection: Connection, upload_id: str) -> tuple[str, str] | None:
    """The bucket and the key of an upload that has not ended, of S3 too."""
    columns = file_buckets.c.name, file_uploads.c.file_key
    found = sa.select(*columns).join(file_uploads, file_uploads.c.bucket_id == file_buckets.c.id)
    row = connection.execute(found.where(file_uploads.c.id == upload_id, IS_ALIVE)).first()
    return None if row is None else (row[0], row[1])
