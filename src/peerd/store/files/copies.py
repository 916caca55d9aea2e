"""Copies: planned, stored, found to be bad, and removed. Each write names the state that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, DiskState, FileState
from peerd.store.files.checks import BATCH, request_checks
from peerd.store.schema.tables import disks, file_chunks, file_copies, file_upload_parts, file_uploads, files, nodes
from peerd.store.schema.types import now
from peerd.store.upserts import insert_new

MOST_COUNTED: Final = 10_000
READABLE = (CopyState.STORED.value, CopyState.REMOVING.value)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a copy of a content can be read.

    Attributes:
        url: where the node serves contents.
        state: of the copy.
    """

    disk_id: int
    kind: str
    node: str | None
    url: str | None
    path: str
    state: str


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue knows of a content that is to be copied or verified.

    Attributes:
        chunk_size: of its chunks; None where it has one.
        chunks: BLAKE3 of each, one after the other.
    """

    id: int
    size: int
    blake3: str
    state: FileState
    chunk_size: int | None = None
    chunks: bytes = b""


def find_contents(connection: Connection, file_ids: Sequence[int]) -> dict[int, Content]:
    """Contents by id; versions without a row are left out."""
    columns = files.c.id, files.c.size, files.c.blake3, files.c.state, file_chunks.c.chunk_size, file_chunks.c.hashes
    found: dict[int, Content] = {}
    for batch in _batches(file_ids):
        statement = sa.select(*columns).outerjoin(file_chunks, file_chunks.c.file_id == files.c.id)
        for file_id, size, blake3, state, chunk_size, hashes in connection.execute(
            statement.where(files.c.id.in_(batch))
        ):
            found[file_id] = Content(
                id=file_id,
                size=size,
                blake3=blake3,
                state=FileState(state),
                chunk_size=chunk_size,
                chunks=bytes(hashes or b""),
            )
    return found


def find_sources(connection: Connection, file_ids: Sequence[int]) -> dict[int, list[Source]]:
    """Where contents can be read, by file: the disks whose copy is stored, folders first, those reported last first."""
    columns = (
        file_copies.c.file_id,
        disks.c.id.label("disk_id"),
        disks.c.kind,
        disks.c.path,
        disks.c.url,
        file_copies.c.state,
        nodes.c.name.label("node"),
    )
    names = [column.key for column in columns[1:]]
    found: dict[int, list[Source]] = {file_id: [] for file_id in file_ids}
    sources: dict[tuple[Any, ...], Source] = {}
    for batch in _batches(file_ids):
        statement = (
            sa.select(*columns)
            .join(disks, disks.c.id == file_copies.c.disk_id)
            .outerjoin(nodes, nodes.c.id == disks.c.node_id)
            .where(
                file_copies.c.file_id.in_(batch),
                file_copies.c.state.in_(READABLE),
                disks.c.state != DiskState.LOST.value,
            )
            .order_by(file_copies.c.state, disks.c.kind, disks.c.seen_at.desc())
        )
        for file_id, *row in connection.execute(statement):
            values = tuple(row)
            if values not in sources:  # most files are on the same disks
                sources[values] = Source(**dict(zip(names, values, strict=True)))
            found[file_id].append(sources[values])
    return found


def plan_copies(connection: Connection, disk_id: int, sizes: dict[int, int], task_id: int) -> None:
    """Enter copies that a task is to make on a disk; a bad one is made anew."""
    for batch in _batches(sorted(sizes)):
        rows = [
            {
                "file_id": file_id,
                "disk_id": disk_id,
                "state": CopyState.PLANNED.value,
                "size": sizes[file_id],
                "task_id": task_id,
            }
            for file_id in batch
        ]
        connection.execute(insert_new(file_copies, connection.dialect.name).values(rows))
        replanned = (CopyState.PLANNED.value, CopyState.BAD.value)
        values: dict[str, Any] = {"state": CopyState.PLANNED.value, "task_id": task_id}
        connection.execute(_update(disk_id, batch, replanned).values(values))


def plan_removals(connection: Connection, disk_id: int, file_ids: Sequence[int], task_id: int) -> None:
    """From now on these copies of a disk do not count; a task removes them."""
    for batch in _batches(sorted(file_ids)):
        values: dict[str, Any] = {"state": CopyState.REMOVING.value, "task_id": task_id}
        connection.execute(_update(disk_id, batch, tuple(CopyState)).values(values))


def copies_in_state(connection: Connection, disk_id: int, file_ids: Sequence[int], *states: CopyState) -> set[int]:
    """Those of the files whose copy on a disk is in one of these states."""
    found: set[int] = set()
    for batch in _batches(sorted(file_ids)):
        is_one = sa.and_(*_are(disk_id, batch, tuple(states)))
        found |= set(connection.execute(sa.select(file_copies.c.file_id).where(is_one)).scalars())
    return found


def known_on_disk(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> set[int]:
    """Those of the contents that the catalogue knows on a disk: copies in any state, and those of uploads."""
    known = copies_in_state(connection, disk_id, file_ids, *CopyState)
    for batch in _batches(file_ids):
        for column in (file_upload_parts.c.content_id, file_uploads.c.content_id):
            known |= set(connection.execute(sa.select(column).where(column.in_(batch))).scalars())
    return known


def copies_stored(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> set[int]:
    """Planned copies are on their disk, verified and durable; return those that were still planned."""
    stored: set[int] = set()
    for batch in _batches(sorted(file_ids)):
        planned = sa.select(file_copies.c.file_id).where(*_are(disk_id, batch, (CopyState.PLANNED,)))
        ids = sorted(connection.execute(planned.order_by(file_copies.c.file_id).with_for_update()).scalars())
        values = {"state": CopyState.STORED.value, "verified_at": now(), "task_id": None}
        connection.execute(_update(disk_id, ids, (CopyState.PLANNED,)).values(values))
        stored |= set(ids)
    return stored


def copies_verified(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """Stored copies were read, and were whole."""
    for batch in _batches(sorted(file_ids)):
        connection.execute(_update(disk_id, batch, (CopyState.STORED,)).values(verified_at=now()))


def copies_bad(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """Copies are damaged or missing: they do not count any more, and their files are checked at once."""
    for batch in _batches(sorted(file_ids)):
        values = {"state": CopyState.BAD.value, "task_id": None}
        connection.execute(_update(disk_id, batch, (CopyState.STORED,)).values(values))
    request_checks(connection, dict.fromkeys(file_ids, 1))


def copies_restored(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """Copies that were bad were read again, and were whole: they count again."""
    for batch in _batches(sorted(file_ids)):
        values = {"state": CopyState.STORED.value, "verified_at": now(), "task_id": None}
        connection.execute(_update(disk_id, batch, (CopyState.BAD,)).values(values))
    request_checks(connection, dict.fromkeys(file_ids, 1))


def copies_removed(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """The contents of copies that were to be removed are not on the disk any more."""
    for batch in _batches(sorted(file_ids)):
        connection.execute(sa.delete(file_copies).where(*_are(disk_id, batch, (CopyState.REMOVING,))))


def count_bad(connection: Connection, disk_id: int) -> int:
    """How many copies of a disk are bad; counting ends at `MOST_COUNTED`."""
    bad = sa.select(file_copies.c.file_id).where(
        file_copies.c.disk_id == disk_id, file_copies.c.state == CopyState.BAD.value
    )
    counted = sa.select(sa.func.count()).select_from(bad.limit(MOST_COUNTED).subquery())
    return int(connection.execute(counted).scalar_one())


def forget_copies(connection: Connection, file_id: int, disk_ids: Sequence[int]) -> None:
    """Delete rows of copies that do not exist: their disk is lost, or they were planned and are not any more."""
    are_its = file_copies.c.file_id == file_id, file_copies.c.disk_id.in_(disk_ids)
    connection.execute(sa.delete(file_copies).where(*are_its))


def _update(disk_id: int, file_ids: Sequence[int], states: Iterable[str]) -> sa.Update:
    return sa.update(file_copies).where(*_are(disk_id, file_ids, states))


def _are(disk_id: int, file_ids: Sequence[int], states: Iterable[str]) -> tuple[sa.ColumnElement[bool], ...]:
    """The conditions of copies of these files on a disk, in one of these states."""
    return (
        file_copies.c.file_id.in_(file_ids),
        file_copies.c.disk_id == disk_id,
        file_copies.c.state.in_([str(state) for state in states]),
    )


def _batches(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[first : first + BATCH] for first in range(0, len(ids), BATCH))
