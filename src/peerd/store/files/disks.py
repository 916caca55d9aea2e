"""Disks in the catalogue: which there are, what their nodes report of them, and what is promised to them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import DiskHasCopies, DiskNotFound
from peerd.domain.files import CopyState, Disk, DiskKind, DiskState
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import disk_counts, disks, file_cluster, file_copies, nodes
from peerd.store.statements.insert_new import insert_new

FOREVER_SILENT = 1e9
"""Seconds of silence of a disk that was never reported."""


class DiskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``disks``, with the name and zone of its node."""

    id: int
    identity: str
    kind: str
    state: str
    node_id: int | None
    node: str | None
    zone: str | None
    address: str | None
    path: str
    url: str | None
    size: int
    free: int
    reserve: int
    problem: str | None
    created_at: datetime
    seen_at: datetime | None
    missing_at: datetime | None
    verified_since: datetime | None
    walked_for: str | None
    walked_to: int | None
    scrubbed_to: int | None
    scrub_started_at: datetime | None
    grace: float | None


class DiskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a node reports of one of its disks.

    Attributes:
        identity: of the disk.
        path: where it is mounted.
        url: where its node serves contents.
        size: bytes of it.
        free: bytes of it that are free.
        reserve: bytes that are to stay free.
        problem: why nothing can be written to it, or None.
    """

    identity: str
    path: str
    url: str | None = None
    size: int
    free: int
    reserve: int
    problem: str | None = None


_OF_NODE = {"node": nodes.c.name, "zone": nodes.c.zone, "address": nodes.c.address}
ROW_COLUMNS = tuple(
    _OF_NODE[field].label(field) if field in _OF_NODE else disks.c[field] for field in DiskRow.__struct_fields__
)


def cluster_identity(connection: Connection) -> str:
    """The identity of the cluster, which its disks have, too; made at the first call."""
    first = {"id": 1, "identity": uuid.uuid4().hex}
    connection.execute(insert_new(file_cluster, connection.dialect.name).values(first))
    return str(connection.execute(sa.select(file_cluster.c.identity).where(file_cluster.c.id == 1)).scalar_one())


def list_disks(connection: Connection) -> list[DiskRow]:
    """All disks, by number."""
    found = sa.select(*ROW_COLUMNS).outerjoin(nodes, nodes.c.id == disks.c.node_id).order_by(disks.c.id)
    return [DiskRow(**row) for row in connection.execute(found).mappings()]


def get_disk(connection: Connection, number: int) -> DiskRow:
    """The disk of this number.

    Raises:
        DiskNotFound: there is none.
    """
    found = {disk.id: disk for disk in list_disks(connection)}
    if number not in found:
        raise DiskNotFound(number, sorted(found))
    return found[number]


def register_disk(
    connection: Connection, identity: str, *, path: str, node_id: int | None, kind: DiskKind = DiskKind.FOLDER
) -> int:
    """Enter a disk into the catalogue; if it is there, return its number."""
    known = sa.select(disks.c.id).where(disks.c.identity == identity)
    if (number := connection.execute(known).scalar()) is not None:
        return int(number)
    values = {"identity": identity, "path": path, "node_id": node_id, "kind": str(kind)}
    connection.execute(sa.insert(disks).values(values))
    return int(connection.execute(known).scalar_one())


def report_disk(connection: Connection, node_id: int, report: DiskReport, grace: float) -> DiskRow | None:
    """Write what a node has found of its disk, and return its row; None: the catalogue does not know the disk.

    A disk that is reported by another node was moved there. One that was silent for longer than ``grace`` seconds was
    missing: its copies count again when they were verified. A lost one stays lost: a new one has to be made of it.
    """
    is_used = sa.and_(disks.c.identity == report.identity, disks.c.state != DiskState.LOST.value)
    was_missing = sa.or_(disks.c.missing_at.is_not(None), disks.c.seen_at < seconds_from_now(-grace))
    returned = {"verified_since": now(), "missing_at": None, "scrubbed_to": None, "scrub_started_at": None}
    connection.execute(sa.update(disks).where(is_used, was_missing).values(returned))
    values: dict[str, Any] = {
        "node_id": node_id,
        "path": report.path,
        "url": report.url,
        "size": report.size,
        "free": report.free,
        "reserve": report.reserve,
        "problem": report.problem,
        "grace": grace,
        "seen_at": now(),
    }
    connection.execute(sa.update(disks).where(is_used).values(values))
    number = connection.execute(sa.select(disks.c.id).where(disks.c.identity == report.identity)).scalar()
    return None if number is None else get_disk(connection, number)


def report_disk_problem(connection: Connection, node_id: int, path: str, problem: str) -> None:
    """Write why a node cannot use the folder at a path, which was a disk of it; the disk itself is not reported."""
    was_its = disks.c.node_id == node_id, disks.c.path == path, disks.c.state != DiskState.LOST.value
    is_new = sa.or_(disks.c.problem.is_(None), disks.c.problem != problem)
    connection.execute(sa.update(disks).where(*was_its, is_new).values(problem=problem))


class DisksRead(NamedTuple):
    """The disks, when they were read, by the database's clock, and the longest grace that nodes have reported."""

    disks: list[Disk]
    present: datetime
    grace: float | None


def read_disks(connection: Connection) -> DisksRead:
    """All disks as decisions see them: silence by the database's clock, room without what is promised."""
    rows = list_disks(connection)
    promised = _promised(connection, [row.id for row in rows if row.state != DiskState.LOST.value])
    return disks_of_rows(connection, rows, promised)


def disks_of_rows(connection: Connection, rows: Sequence[DiskRow], promised: Mapping[int, int]) -> DisksRead:
    """Disks of rows; ``promised`` are the bytes of the copies that are planned on each."""
    present = connection.execute(sa.select(now())).scalar_one()
    graces = [row.grace for row in rows if row.grace is not None and row.state != DiskState.LOST.value]
    found = [_as_disk(row, promised.get(row.id, 0), present) for row in rows]
    return DisksRead(found, present, max(graces, default=None))


def _promised(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """Bytes of planned copies, by disk."""
    sums = (
        sa.select(file_copies.c.disk_id, sa.func.sum(file_copies.c.size))
        .where(file_copies.c.disk_id.in_(numbers), file_copies.c.state == CopyState.PLANNED.value)
        .group_by(file_copies.c.disk_id)
    )
    return {disk_id: int(size) for disk_id, size in connection.execute(sums)}


def _as_disk(row: DiskRow, promised: int, present: datetime) -> Disk:
    silence = FOREVER_SILENT if row.seen_at is None else max(0.0, (present - row.seen_at).total_seconds())
    return Disk(
        id=row.id,
        node=None if row.kind == DiskKind.S3.value else row.node,
        zone=row.zone,
        kind=DiskKind(row.kind),
        state=DiskState(row.state),
        size=row.size,
        free=max(0, row.free - row.reserve - promised),
        silent_for=silence,
        problem=row.problem,
        verified_since=row.verified_since,
    )


def set_disk_state(connection: Connection, number: int, state: DiskState) -> DiskRow:
    """Set what a disk is used for; all files on it are checked then.

    Raises:
        DiskNotFound: there is none.
    """
    get_disk(connection, number)
    values = {"state": state.value, "walked_for": state.value, "walked_to": None}
    connection.execute(sa.update(disks).where(disks.c.id == number).values(values))
    return get_disk(connection, number)


def remove_disk(connection: Connection, number: int) -> None:
    """Remove a disk from the catalogue.

    Raises:
        DiskNotFound: there is none.
        DiskHasCopies: it has copies.
    """
    get_disk(connection, number)
    connection.execute(sa.select(disks.c.id).where(disks.c.id == number).with_for_update())
    copies = connection.execute(
        sa.select(sa.func.count()).select_from(file_copies).where(file_copies.c.disk_id == number)
    ).scalar_one()
    if copies:
        raise DiskHasCopies(number, copies)
    connection.execute(sa.delete(disk_counts).where(disk_counts.c.disk_id == number))
    connection.execute(sa.delete(disks).where(disks.c.id == number))
