"""Lists of files by prefix, in the order of the bytes of their keys, or as folders; and the current file of a key."""

from __future__ import annotations

from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import DiskState, StoredFile
from peerd.store.files.buckets import Bucket, get_bucket
from peerd.store.files.copies import READABLE, SOURCE_COLUMNS, SOURCE_ORDER, Source
from peerd.store.files.versions import FILE_COLUMNS, get_file, select_files
from peerd.store.records import read_all, to_record
from peerd.store.schema.tables import disks, file_buckets, file_copies, files, nodes

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

    The cost of a page does not depend on how many files a prefix stands for: the walk goes on behind its last key.
    """
    page = _Page(connection, bucket, prefix, delimiter)
    page.start_behind(after)
    while page.size < limit and page.read(limit - page.size):
        pass
    is_more = page.size >= limit and page.has_more()
    return FileList(page.files, page.prefixes, page.last if is_more else None)


class _Page:
    """A page while it is read; the arguments are those of `list_files`."""

    def __init__(self, connection: Connection, bucket: Bucket, prefix: str, delimiter: str) -> None:
        self.files: list[StoredFile] = []
        self.prefixes: list[str] = []
        self.last = ""
        """The last entry."""
        self._connection = connection
        self._bucket = bucket
        self._prefix = prefix
        self._delimiter = delimiter
        self._from: sa.ColumnElement[bool] | None = None

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.files) + len(self.prefixes)

    def start_behind(self, entry: str) -> None:
        """Read on behind a key, or behind all keys that an entry of the prefixes stands for."""
        if common_prefix(entry, self._prefix, self._delimiter) == entry:
            self._start_at(_end_of_prefix(entry))
        elif entry >= self._prefix:
            self._from = files.c.file_key > entry
        else:
            self._start_at(self._prefix)

    def read(self, wanted: int) -> bool:
        """Read some entries; whether there may be more."""
        rows = self._rows(min(wanted, ROWS_BEFORE_PREFIX) if self._delimiter else wanted)
        for file in rows:
            common = common_prefix(file.key, self._prefix, self._delimiter)
            if common is not None:
                self.prefixes.append(common)
                self.last = common
                self.start_behind(common)
                return True
            self.files.append(file)
            self.last = file.key
        if rows:
            self.start_behind(self.last)
        return bool(rows)

    def has_more(self) -> bool:
        """Whether a file is behind the last entry."""
        return bool(self._rows(1))

    def _rows(self, limit: int) -> list[StoredFile]:
        conditions = [files.c.bucket_id == self._bucket.id, files.c.is_current == 1]
        if self._from is not None:
            conditions.append(self._from)
        if (end := _end_of_prefix(self._prefix)) is not None:
            conditions.append(files.c.file_key < end)
        statement = select_files(*conditions).order_by(files.c.file_key).limit(limit)
        return read_all(self._connection, StoredFile, statement)

    def _start_at(self, key: str | None) -> None:
        if key is None:  # behind the last text that there is
            self._from = sa.false()
        elif key:
            self._from = files.c.file_key >= key


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
