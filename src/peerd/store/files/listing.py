"""Lists of files and uploads by prefix, in the order of the bytes of their keys, or as folders; files with sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.files import DiskState, StoredFile
from peerd.store.files.buckets import Bucket, get_bucket, list_buckets
from peerd.store.files.copies import READABLE, SOURCE_COLUMNS, SOURCE_ORDER, Source
from peerd.store.files.uploads import IS_ALIVE, IS_OF_S3, SELECT, Upload
from peerd.store.files.versions import FILE_COLUMNS, get_file, select_files
from peerd.store.records import read_all, to_record
from peerd.store.schema.tables import disks, file_buckets, file_copies, file_upload_parts, file_uploads, files, nodes
from peerd.store.schema.types import seconds_from_now

Entry = TypeVar("Entry", StoredFile, Upload)
Conditions = Sequence[sa.ColumnElement[bool]]
MAX_PAGE: Final = 1000
ROWS_BEFORE_PREFIX: Final = 100
"""Rows that are read at once where the next one may begin a prefix that stands for many."""


class FileList(msgspec.Struct, frozen=True):
    """A page of a list.

    Attributes:
        files: in the order of their keys.
        prefixes: what keys have up to the delimiter, each once, in order.
        next_after: what to give as ``after`` for the next page; None: this is the last one.
    """

    files: list[StoredFile]
    prefixes: list[str]
    next_after: str | None = None


def list_files(
    connection: Connection,
    bucket: Bucket,
    *,
    prefix: str = "",
    after: str = "",
    delimiter: str = "",
    limit: int = MAX_PAGE,
) -> FileList:
    """A page of the files of a bucket.

    Args:
        connection: of a read.
        bucket: whose files are listed.
        prefix: what keys begin with.
        after: keys after this one only.
        delimiter: keys that have it after the prefix are one entry of ``prefixes`` together.
        limit: the most entries, files and prefixes.
    """

    def read(conditions: Conditions, limit: int) -> list[StoredFile]:
        current = select_files(files.c.bucket_id == bucket.id, files.c.is_current == 1, *conditions)
        return read_all(connection, StoredFile, current.order_by(files.c.file_key).limit(limit))

    page = _Page(read, files.c.file_key, None, prefix, delimiter)
    is_more = page.fill((after, None), limit)
    return FileList(page.entries, page.prefixes, page.last[0] if is_more else None)


class _Page(Generic[Entry]):
    """A page of entries in the order of their keys, and of their ids if there are several of a key, while it is read.

    The cost of a page does not depend on how many entries a prefix stands for: the walk goes on behind its last key.

    Args:
        read: the first entries that meet conditions, at most so many.
        key: the column of the keys.
        entry_id: the column of the ids; None: there is one entry of a key.
        prefix: what keys begin with.
        delimiter: keys that have it after the prefix are one entry of ``prefixes`` together.
    """

    def __init__(
        self,
        read: Callable[[Conditions, int], list[Entry]],
        key: sa.Column[Any],
        entry_id: sa.Column[Any] | None,
        prefix: str,
        delimiter: str,
    ) -> None:
        self.entries: list[Entry] = []
        self.prefixes: list[str] = []
        self.last: tuple[str, str] = ("", "")
        self._read: Callable[[Conditions, int], list[Entry]] = read
        self._key = key
        self._id = entry_id
        self._prefix = prefix
        self._delimiter = delimiter
        self._from: list[sa.ColumnElement[bool]] = []

    def fill(self, after: tuple[str, str | None], limit: int) -> bool:
        """Read entries behind a key, or behind an id of it, until there are so many; whether there are more."""
        self._start_behind(*after)
        while (wanted := limit - len(self.entries) - len(self.prefixes)) > 0 and self._read_some(wanted):
            pass
        return wanted <= 0 and bool(self._rows(1))

    def _start_behind(self, key: str, entry_id: str | None) -> None:
        """Read on behind an entry, or behind all keys that one of the prefixes stands for."""
        if common_prefix(key, self._prefix, self._delimiter) == key:
            self._start_at(_end_of_prefix(key))
        elif key < self._prefix:
            self._start_at(self._prefix)
        elif self._id is None or entry_id is None:
            self._from = [self._key > key]
        else:
            self._from = [sa.or_(self._key > key, sa.and_(self._key == key, self._id > entry_id))]

    def _start_at(self, key: str | None) -> None:
        if key is None:  # behind the last text that there is
            self._from = [sa.false()]
        elif key:
            self._from = [self._key >= key]

    def _read_some(self, wanted: int) -> bool:
        rows = self._rows(min(wanted, ROWS_BEFORE_PREFIX) if self._delimiter else wanted)
        for entry in rows:
            common = common_prefix(entry.key, self._prefix, self._delimiter)
            if common is not None:
                self.prefixes.append(common)
                self.last = (common, "")
                self._start_behind(common, None)
                return True
            self.entries.append(entry)
            self.last = (entry.key, str(entry.id))
        if rows:
            self._start_behind(*self.last)
        return bool(rows)

    def _rows(self, limit: int) -> list[Entry]:
        end = _end_of_prefix(self._prefix)
        return self._read(self._from if end is None else [*self._from, self._key < end], limit)


def common_prefix(key: str, prefix: str, delimiter: str) -> str | None:
    """What a key has up to the delimiter behind a prefix; None: it is an entry by itself.

    >>> common_prefix("films/a/b", "films/", "/"), common_prefix("films/a", "films/", "/"), common_prefix("a/b", "", "")
    ('films/a/', None, None)
    """
    at = key.find(delimiter, len(prefix)) if delimiter and key.startswith(prefix) else -1
    return None if at < 0 else key[: at + len(delimiter)]


def _end_of_prefix(prefix: str) -> str | None:
    r"""The first text that is after all with this prefix.

    >>> _end_of_prefix("films/"), _end_of_prefix("a\U0010ffff")
    ('films0', 'b')
    """
    while prefix:
        last = ord(prefix[-1]) + 1
        if last == 0xD800:  # surrogates are no characters
            last = 0xE000
        if last <= 0x10FFFF:
            return prefix[:-1] + chr(last)
        prefix = prefix[:-1]
    return None


# ---------------------------------------------------------------- lookup


# A row for each copy, in the order of `find_sources`; one without a disk where there is none.
_WITH_SOURCES: Final = (
    sa.select(
        *FILE_COLUMNS,
        *(column for column in SOURCE_COLUMNS if column.name != "state"),
        file_copies.c.state.label("copy_state"),
    )
    .join(file_buckets, file_buckets.c.id == files.c.bucket_id)
    .outerjoin(file_copies, sa.and_(file_copies.c.file_id == files.c.id, file_copies.c.state.in_(READABLE)))
    .outerjoin(disks, sa.and_(disks.c.id == file_copies.c.disk_id, disks.c.state != DiskState.LOST.value))
    .outerjoin(nodes, nodes.c.id == disks.c.node_id)
    .where(
        file_buckets.c.name == sa.bindparam("bucket"),
        files.c.is_current == 1,
        files.c.file_key == sa.bindparam("key"),
    )
    .order_by(*SOURCE_ORDER)
)


def find_with_sources(connection: Connection, bucket: str, key: str) -> tuple[StoredFile, list[Source]]:
    """The current version of a key, and its sources as `peerd.store.files.copies.find_sources` has them.

    Args:
        connection: of a read.
        bucket: the name of the bucket.
        key: of the file.

    Raises:
        BucketNotFound, FileMissing: there is none.
    """
    rows = connection.execute(_WITH_SOURCES, {"bucket": bucket, "key": key}).mappings().all()
    if not rows:
        return get_file(connection, get_bucket(connection, bucket), key), []
    sources = [to_record(Source, row, state=row["copy_state"]) for row in rows if row["disk_id"] is not None]
    return to_record(StoredFile, rows[0]), sources


# ---------------------------------------------------------------- uploads


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

    def read(conditions: Conditions, limit: int) -> list[Upload]:
        of_bucket = SELECT.where(file_uploads.c.bucket_id == bucket.id, *IS_OF_S3, *conditions)
        ordered = of_bucket.order_by(file_uploads.c.file_key, file_uploads.c.id)
        return read_all(connection, Upload, ordered.limit(limit))

    page = _Page(read, file_uploads.c.file_key, file_uploads.c.id, prefix, delimiter)
    is_more = page.fill(after, limit) and limit > 0
    return UploadList(page.entries, page.prefixes, page.last if is_more else None)


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
