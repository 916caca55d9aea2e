"""Copies: planned, stored, found to be bad, and removed. Each write names the state that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, DiskState, FileState
from peerd.store.files.checks import request_checks
from peerd.store.files.disks import silence_of
from peerd.store.records import add_new, columns_of, read_all, to_record
from peerd.store.schema.tables import disks, file_chunks, file_copies, file_upload_parts, file_uploads, files, nodes
from peerd.store.schema.types import now
from peerd.store.tasks.rows import batches

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


SOURCE_COLUMNS: Final = columns_of(Source, disks, disk_id=disks.c.id, node=nodes.c.name, state=file_copies.c.state)
SOURCE_ORDER: Final = (file_copies.c.state, disks.c.kind, disks.c.seen_at.desc())


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
    chunks = {"chunk_size": file_chunks.c.chunk_size, "chunks": sa.func.coalesce(file_chunks.c.hashes, b"")}
    joined = sa.select(*columns_of(Content, files, **chunks)).outerjoin(
        file_chunks, file_chunks.c.file_id == files.c.id
    )
    found: list[Content] = []
    for batch in batches(file_ids):
        found += read_all(connection, Content, joined.where(files.c.id.in_(batch)))
    return {content.id: content for content in found}


def find_sources(connection: Connection, file_ids: Sequence[int]) -> dict[int, list[Source]]:
    """Where contents can be read, by file: the disks whose copy is stored, folders first, those reported last first."""
    found: dict[int, list[Source]] = {file_id: [] for file_id in file_ids}
    for batch in batches(file_ids):
        statement = (
            sa.select(file_copies.c.file_id, *SOURCE_COLUMNS)
            .join(disks, disks.c.id == file_copies.c.disk_id)
            .outerjoin(nodes, nodes.c.id == disks.c.node_id)
            .where(
                file_copies.c.file_id.in_(batch),
                file_copies.c.state.in_(READABLE),
                disks.c.state != DiskState.LOST.value,
            )
            .order_by(*SOURCE_ORDER)
        )
        for row in connection.execute(statement).mappings():
            found[row["file_id"]].append(to_record(Source, row))
    return found


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


def list_copies(connection: Connection, file_id: int) -> list[FileCopy]:
    """The copies of a file, by disk."""
    of_disk = {"disk": disks.c.id, "node": nodes.c.name, "path": disks.c.path, "disk_state": disks.c.state}
    found = (
        sa.select(*columns_of(FileCopy, file_copies, **of_disk, silent_for=disks.c.seen_at))
        .join(disks, disks.c.id == file_copies.c.disk_id)
        .outerjoin(nodes, nodes.c.id == disks.c.node_id)
        .where(file_copies.c.file_id == file_id)
        .order_by(file_copies.c.disk_id)
    )
    present = connection.execute(sa.select(now())).scalar_one()
    rows = connection.execute(found).mappings()
    return [to_record(FileCopy, row, silent_for=silence_of(row["silent_for"], present)) for row in rows]


def plan_copies(connection: Connection, disk_id: int, sizes: dict[int, int], task_id: int) -> None:
    """Enter copies that a task is to make on a disk; a bad one is made anew."""
    planned = {"disk_id": disk_id, "state": CopyState.PLANNED.value, "task_id": task_id}
    for batch in batches(sorted(sizes)):
        add_new(connection, file_copies, [{**planned, "file_id": one, "size": sizes[one]} for one in batch])
    _change(connection, disk_id, sizes, (CopyState.PLANNED, CopyState.BAD), CopyState.PLANNED, task_id=task_id)


def plan_removals(connection: Connection, disk_id: int, file_ids: Sequence[int], task_id: int) -> None:
    """From now on these copies of a disk do not count; a task removes them."""
    _change(connection, disk_id, file_ids, CopyState, CopyState.REMOVING, task_id=task_id)


def copies_in_state(connection: Connection, disk_id: int, file_ids: Sequence[int], *states: CopyState) -> set[int]:
    """The files among these whose copy on a disk is in one of these states."""
    found: set[int] = set()
    for batch in batches(sorted(file_ids)):
        found |= set(
            connection.execute(sa.select(file_copies.c.file_id).where(*_are(disk_id, batch, states))).scalars()
        )
    return found


def known_on_disk(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> set[int]:
    """The contents among these that the catalogue knows on a disk: copies in any state, and contents of uploads."""
    known = copies_in_state(connection, disk_id, file_ids, *CopyState)
    for batch in batches(file_ids):
        for column in (file_upload_parts.c.content_id, file_uploads.c.content_id):
            known |= set(connection.execute(sa.select(column).where(column.in_(batch))).scalars())
    return known


def copies_stored(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> set[int]:
    """Planned copies are on their disk, verified and durable; return those that were still planned."""
    stored: set[int] = set()
    for batch in batches(sorted(file_ids)):
        planned = sa.select(file_copies.c.file_id).where(*_are(disk_id, batch, (CopyState.PLANNED,)))
        stored |= set(connection.execute(planned.order_by(file_copies.c.file_id).with_for_update()).scalars())
    _change(connection, disk_id, stored, (CopyState.PLANNED,), CopyState.STORED, verified_at=now())
    return stored


def copies_verified(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """Stored copies were read, and were whole."""
    _change(connection, disk_id, file_ids, (CopyState.STORED,), CopyState.STORED, verified_at=now())


def copies_bad(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """Copies are damaged or missing: they do not count any more, and their files are checked at once."""
    _change(connection, disk_id, file_ids, (CopyState.STORED,), CopyState.BAD)
    request_checks(connection, dict.fromkeys(file_ids, 1))


def copies_restored(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """Copies that were bad were read again, and were whole: they count again."""
    _change(connection, disk_id, file_ids, (CopyState.BAD,), CopyState.STORED, verified_at=now())
    request_checks(connection, dict.fromkeys(file_ids, 1))


def copies_removed(connection: Connection, disk_id: int, file_ids: Sequence[int]) -> None:
    """The contents of copies that were to be removed are not on the disk any more."""
    for batch in batches(sorted(file_ids)):
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


def _change(
    connection: Connection,
    disk_id: int,
    file_ids: Iterable[int],
    states: Iterable[CopyState],
    to: CopyState,
    *,
    task_id: int | None = None,
    **values: Any,
) -> None:
    """Write another state of copies on a disk that are in one of these, and the task that makes or removes them."""
    for batch in batches(sorted(file_ids)):
        changed = sa.update(file_copies).where(*_are(disk_id, batch, states))
        connection.execute(changed.values(state=to.value, task_id=task_id, **values))


def _are(disk_id: int, file_ids: Sequence[int], states: Iterable[CopyState]) -> tuple[sa.ColumnElement[bool], ...]:
    """The conditions of copies of these files on a disk, in one of these states."""
    are_of_states = file_copies.c.state.in_([state.value for state in states])
    return file_copies.c.file_id.in_(file_ids), file_copies.c.disk_id == disk_id, are_of_states
