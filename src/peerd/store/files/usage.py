"""What files and disks add up to, and walks over all files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState
from peerd.store.files.buckets import Bucket, list_buckets
from peerd.store.files.disks import DiskRow, list_disks
from peerd.store.schema.tables import disks, file_copies, file_usage, files, nodes
from peerd.store.schema.types import now
from peerd.store.tasks.rows import to_whole_number


class FileCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a file, and where it is.

    Attributes:
        disk: the number of its disk.
        node: the name of the disk's node; None for an object store.
        path: of the disk.
        disk_state: what the disk is used for.
        verified_at: when its node has read it last, and it was whole; None: never.
        silent_for: seconds since the disk was reported last; None: never.
    """

    disk: int
    node: str | None
    path: str
    state: str
    disk_state: str
    verified_at: datetime | None = None
    silent_for: float | None = None


class BucketUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket, and what its current files add up to; each file counts once, however many copies it has.

    Attributes:
        class_name: the class of files that are put without one.
        quota: the most bytes of its files; None: no limit.
        bytes: of its current files.
    """

    id: int
    name: str
    class_name: str
    quota: int | None
    created_at: datetime
    files: int
    bytes: int


class DiskCopies(msgspec.Struct, frozen=True, kw_only=True):
    """A disk, and how many copies it has of each state.

    Attributes:
        size: bytes of it.
        free: bytes of it that are free, without its reserve.
        silent_for: seconds since its node has reported it last; None: never.
        problem: why nothing can be written to it now, or None.
        walked_for: why all its files are being checked, or None.
        copies: by state.
    """

    id: int
    node: str | None
    zone: str | None
    path: str
    url: str | None
    kind: str
    state: str
    size: int
    free: int
    silent_for: float | None
    problem: str | None
    walked_for: str | None
    copies: dict[str, int]


class StorageUsage(msgspec.Struct, frozen=True):
    """Buckets by name, and disks by number."""

    buckets: list[BucketUsage]
    disks: list[DiskCopies]


class FilesWalked(msgspec.Struct, frozen=True):
    """A batch of files, with the disks of the stored copies of each, and where to go on; None: these were the last."""

    copies: dict[int, list[int]]
    next_after: int | None


def read_usage(connection: Connection) -> StorageUsage:
    """What all buckets and disks add up to; counting the copies takes longer the more there are."""
    return StorageUsage(list_bucket_usage(connection), list_disk_copies(connection))


def list_bucket_usage(connection: Connection) -> list[BucketUsage]:
    """All buckets by name, with their sums."""
    summed = sa.select(file_usage.c.bucket_id, sa.func.sum(file_usage.c.files), sa.func.sum(file_usage.c.bytes))
    found = {row[0]: row for row in connection.execute(summed.group_by(file_usage.c.bucket_id))}
    return [_with_usage(bucket, found.get(bucket.id, (0, 0, 0))) for bucket in list_buckets(connection)]


def list_disk_copies(connection: Connection, *, counted: bool = True) -> list[DiskCopies]:
    """All disks by number.

    Args:
        connection: of a read.
        counted: whether their copies are counted; else ``copies`` is empty.
    """
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    if counted:
        columns = file_copies.c.disk_id, file_copies.c.state
        for disk_id, state, count in connection.execute(sa.select(*columns, sa.func.count()).group_by(*columns)):
            counts[disk_id][str(state)] = int(count)
    present = connection.execute(sa.select(now())).scalar_one()
    return [_with_copies(row, counts[row.id], present) for row in list_disks(connection)]


def list_copies(connection: Connection, file_id: int) -> list[FileCopy]:
    """The copies of a file, by disk."""
    columns = (
        file_copies.c.disk_id.label("disk"),
        nodes.c.name.label("node"),
        disks.c.path,
        file_copies.c.state,
        disks.c.state.label("disk_state"),
        file_copies.c.verified_at,
        disks.c.seen_at,
    )
    found = (
        sa.select(*columns)
        .join(disks, disks.c.id == file_copies.c.disk_id)
        .outerjoin(nodes, nodes.c.id == disks.c.node_id)
        .where(file_copies.c.file_id == file_id)
        .order_by(file_copies.c.disk_id)
    )
    present = connection.execute(sa.select(now())).scalar_one()
    copies = []
    for row in connection.execute(found).mappings():
        values = dict(row)
        values["silent_for"] = _silence(values.pop("seen_at"), present)
        copies.append(FileCopy(**{**values, "state": str(row["state"]), "disk_state": str(row["disk_state"])}))
    return copies


def walk_files(connection: Connection, bucket: Bucket | None, after: int, limit: int) -> FilesWalked:
    """The next current files of a bucket, or of all, in the order of their ids."""
    wanted = sa.select(files.c.id).where(files.c.is_current == 1, files.c.id > after)
    if bucket is not None:
        wanted = wanted.where(files.c.bucket_id == bucket.id)
    ids = list(connection.execute(wanted.order_by(files.c.id).limit(limit)).scalars())
    copies: dict[int, list[int]] = {file_id: [] for file_id in ids}
    stored = sa.select(file_copies.c.file_id, file_copies.c.disk_id).where(
        file_copies.c.file_id.in_(ids), file_copies.c.state == CopyState.STORED.value
    )
    for file_id, disk_id in connection.execute(stored):
        copies[file_id].append(disk_id)
    return FilesWalked(copies, ids[-1] if len(ids) == limit else None)


def _with_usage(bucket: Bucket, sums: Sequence[int]) -> BucketUsage:
    return BucketUsage(**msgspec.structs.asdict(bucket), files=to_whole_number(sums[1]), bytes=to_whole_number(sums[2]))


def _with_copies(row: DiskRow, copies: dict[str, int], present: datetime) -> DiskCopies:
    names = ("id", "node", "zone", "path", "url", "size", "problem", "walked_for")
    return DiskCopies(
        **{name: getattr(row, name) for name in names},
        kind=str(row.kind),
        state=str(row.state),
        free=max(0, row.free - row.reserve),
        silent_for=_silence(row.seen_at, present),
        copies=copies,
    )


def _silence(seen_at: datetime | None, present: datetime) -> float | None:
    return None if seen_at is None else max(0.0, (present - seen_at).total_seconds())
