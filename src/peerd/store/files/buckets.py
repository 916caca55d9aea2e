"""Buckets: sets of files with a class, a quota and counts of what they have."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import (
    BucketExists,
    BucketNotEmpty,
    BucketNotFound,
    InvalidFile,
    QuotaExceeded,
)
from peerd.domain.files import DEFAULT_CLASS, FileClass, check_bucket_name
from peerd.store.files.classes import get_class
from peerd.store.files.disks import DiskCopies, list_disk_copies
from peerd.store.records import add_new, columns_of, read_all, read_first, to_record
from peerd.store.schema.tables import file_buckets, file_classes, file_uploads, file_usage, files
from peerd.store.tasks.rows import to_whole_number

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


class BucketUsage(Bucket, frozen=True, kw_only=True):
    """A bucket, and what its current files add up to; each file counts once, however many copies it has.

    Attributes:
        class_name: the class of files that are put without one.
        quota: the most bytes of its files; None: no limit.
        bytes: of its current files.
    """

    files: int
    bytes: int


class StorageUsage(msgspec.Struct, frozen=True):
    """Buckets by name, and disks by number."""

    buckets: list[BucketUsage]
    disks: list[DiskCopies]


BUCKET_COLUMNS = columns_of(Bucket, file_buckets)
_CLASS_COLUMNS = (column for column in columns_of(FileClass, file_classes) if column.name != "name")
_WITH_CLASS = (
    sa.select(*BUCKET_COLUMNS, file_classes.c.name.label("class"), *_CLASS_COLUMNS)
    .outerjoin(file_classes, file_classes.c.name == sa.func.coalesce(_GIVEN_CLASS, file_buckets.c.class_name))
    .where(file_buckets.c.name == sa.bindparam("bucket"))
)


def list_buckets(connection: Connection) -> list[Bucket]:
    """All buckets, by name."""
    return read_all(connection, Bucket, sa.select(*BUCKET_COLUMNS).order_by(file_buckets.c.name))


def get_bucket(connection: Connection, name: str) -> Bucket:
    """The bucket of this name.

    Raises:
        BucketNotFound: there is none.
    """
    found = read_first(connection, Bucket, sa.select(*BUCKET_COLUMNS).where(file_buckets.c.name == name))
    if found is None:
        raise BucketNotFound(name, [bucket.name for bucket in list_buckets(connection)][:20])
    return found


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
    bucket = to_record(Bucket, row)
    if row["class"] is None:
        return bucket, get_class(connection, class_name or bucket.class_name)
    return bucket, to_record(FileClass, row, name=row["class"])


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
    if not add_new(connection, file_buckets, values):
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
    values: dict[str, Any] = {}  # what is not given stays as another change of this moment leaves it
    if class_name is not None:
        values["class_name"] = get_class(connection, class_name).name
    if quota is not None or no_quota:
        values["quota"] = None if no_quota else quota
    if values:
        connection.execute(sa.update(file_buckets).where(file_buckets.c.id == bucket.id).values(values))
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


def list_bucket_usage(connection: Connection) -> list[BucketUsage]:
    """All buckets by name, with their sums."""
    summed = sa.select(file_usage.c.bucket_id, sa.func.sum(file_usage.c.files), sa.func.sum(file_usage.c.bytes))
    found = {row[0]: row[1:] for row in connection.execute(summed.group_by(file_usage.c.bucket_id))}
    usages = []
    for bucket in list_buckets(connection):
        count, size = map(to_whole_number, found.get(bucket.id, (0, 0)))
        usages.append(BucketUsage(**msgspec.structs.asdict(bucket), files=count, bytes=size))
    return usages


def read_usage(connection: Connection) -> StorageUsage:
    """What all buckets and disks add up to; counting the copies takes longer the more there are."""
    return StorageUsage(list_bucket_usage(connection), list_disk_copies(connection))


def count_in_bucket(connection: Connection, bucket_id: int, file_id: int, files_added: int, bytes_added: int) -> None:
    """Count a file that was added, or, with negative numbers, one that is not current any more."""
    part = file_id % USAGE_PARTS
    values = {"of_bucket": bucket_id, "of_part": part, "files_added": files_added, "bytes_added": bytes_added}
    if not connection.execute(_COUNT, values).rowcount:
        add_new(connection, file_usage, {"bucket_id": bucket_id, "part": part, "files": 0, "bytes": 0})
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
