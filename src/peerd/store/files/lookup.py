"""The current version of a key, and where it can be read, by one statement: what each GET asks."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from peerd.domain.files import DiskState, StoredFile
from peerd.store.files.buckets import get_bucket
from peerd.store.files.copies import READABLE, Source
from peerd.store.files.versions import FILE_COLUMNS, get_file, to_file
from peerd.store.schema.tables import disks, file_buckets, file_copies, files, nodes

SOURCE_COLUMNS: Final = (
    disks.c.id.label("disk_id"),
    disks.c.kind,
    nodes.c.name.label("node"),
    disks.c.url,
    disks.c.path,
    file_copies.c.state.label("copy_state"),
)


def _with_sources() -> sa.Select[Any]:
    """A row for each copy, in the order of `find_sources`; one without a disk where there is none."""
    is_copy = sa.and_(file_copies.c.file_id == files.c.id, file_copies.c.state.in_(READABLE))
    is_disk = sa.and_(disks.c.id == file_copies.c.disk_id, disks.c.state != DiskState.LOST.value)
    return (
        sa.select(*FILE_COLUMNS, *SOURCE_COLUMNS)
        .join(file_buckets, file_buckets.c.id == files.c.bucket_id)
        .outerjoin(file_copies, is_copy)
        .outerjoin(disks, is_disk)
        .outerjoin(nodes, nodes.c.id == disks.c.node_id)
        .where(
            file_buckets.c.name == sa.bindparam("bucket"),
            files.c.is_current == 1,
            files.c.file_key == sa.bindparam("key"),
        )
        .order_by(file_copies.c.state, disks.c.kind, disks.c.seen_at.desc())
    )


_WITH_SOURCES: Final = _with_sources()


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
    return to_file(rows[0]), [_to_source(row) for row in rows if row["disk_id"] is not None]


def _to_source(row: RowMapping) -> Source:
    return Source(
        disk_id=row["disk_id"],
        kind=row["kind"],
        node=row["node"],
        url=row["url"],
        path=row["path"],
        state=row["copy_state"],
    )
