"""Disks in the catalogue: their reports, their counts of copies and what is promised to them.

One manager counts the copies of each disk by state for the whole cluster, and all others read its result. Counting
reads the entries of one disk in the index `file_copies_disk`, and no rows. It takes longer the more copies the disk
has; so it is not done for each page that is shown or metric that is scraped.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import DiskHasCopies, DiskNotFound
from peerd.domain.files import CopyState, Disk, DiskKind, DiskState
from peerd.store.records import add_new, columns_of, to_record
from peerd.store.schema.tables import disk_counts, disks, file_cluster, file_copies, nodes
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.tasks.rows import to_number, to_whole_number

LONGEST_GRACE: Final = 10 * 365 * 86_400.0
"""Seconds; a longer one, which only SQL by hand can have written, counts as this."""

MAX_PROBLEM = 500
SILENT_AFTER = 10.0
"""Seconds without a report after which a node that cannot use a disk says why."""
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
_SELECT = sa.select(*columns_of(DiskRow, disks, **_OF_NODE)).outerjoin(nodes, nodes.c.id == disks.c.node_id)


def cluster_identity(connection: Connection) -> str:
    """The identity of the cluster, which its disks have, too; made at the first call."""
    add_new(connection, file_cluster, {"id": 1, "identity": uuid.uuid4().hex})
    return str(connection.execute(sa.select(file_cluster.c.identity).where(file_cluster.c.id == 1)).scalar_one())


def list_disks(connection: Connection) -> list[DiskRow]:
    """All disks, by number."""
    return [_to_row(row) for row in connection.execute(_SELECT.order_by(disks.c.id)).mappings()]


def _to_row(row: Mapping[Any, Any]) -> DiskRow:
    """A row as a value, also where SQL by hand has written other numbers: one disk must not hide all others."""
    numbers: dict[str, Any] = {name: to_whole_number(row[name]) for name in ("size", "free", "reserve")}
    if row["grace"] is not None:
        numbers["grace"] = min(to_number(row["grace"]), LONGEST_GRACE)
    return to_record(DiskRow, row, **numbers)


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
    missing: its copies count again when they were verified; those of a shared disk at once, because an object store
    that could not be reached has changed nothing meanwhile. A lost one stays lost: a new one has to be made of it.

    A report without a problem does not end a failure that another process has written lately (`report_failure`).
    """
    is_used = sa.and_(disks.c.identity == report.identity, disks.c.state != DiskState.LOST.value)
    is_folder = disks.c.kind == DiskKind.FOLDER.value
    was_missing = sa.or_(disks.c.missing_at.is_not(None), disks.c.seen_at < seconds_from_now(-grace))
    returned = {"verified_since": now(), "missing_at": None, "scrubbed_to": None, "scrub_started_at": None}
    connection.execute(sa.update(disks).where(is_used, was_missing, is_folder).values(returned))
    connection.execute(sa.update(disks).where(is_used, was_missing, sa.not_(is_folder)).values(missing_at=None))
    has_failed = sa.and_(disks.c.failed_until.is_not(None), disks.c.failed_until > now())
    values = msgspec.structs.asdict(report) | {
        "node_id": sa.case((is_folder, node_id), else_=None),
        "problem": report.problem or sa.case((has_failed, disks.c.problem), else_=None),
        "grace": grace,
        "seen_at": now(),
    }
    connection.execute(sa.update(disks).where(is_used).values(values))
    number = connection.execute(sa.select(disks.c.id).where(disks.c.identity == report.identity)).scalar()
    return None if number is None else get_disk(connection, number)


def report_failure(connection: Connection, number: int, problem: str, seconds: float) -> None:
    """Write that a disk has failed: it gets no new contents for some seconds, even if others report no problem."""
    values = {"problem": problem[:MAX_PROBLEM], "failed_until": seconds_from_now(seconds)}
    connection.execute(sa.update(disks).where(disks.c.id == number).values(values))


def report_unusable(connection: Connection, node_id: int, path: str, problem: str) -> None:
    """Write why the disk of a place cannot be used, unless another node has reported it lately, who can use it."""
    is_it = disks.c.path == path, sa.or_(disks.c.node_id == node_id, disks.c.node_id.is_(None))
    is_silent = sa.or_(disks.c.seen_at.is_(None), disks.c.seen_at < seconds_from_now(-SILENT_AFTER))
    is_used = disks.c.state != DiskState.LOST.value
    connection.execute(sa.update(disks).where(*is_it, is_silent, is_used).values(problem=problem[:MAX_PROBLEM]))


def bytes_on_disk(connection: Connection, identity: str) -> int:
    """The bytes of all copies on a disk, made or planned; it takes longer the more there are."""
    summed = sa.select(sa.func.sum(file_copies.c.size)).join(disks, disks.c.id == file_copies.c.disk_id)
    return int(connection.execute(summed.where(disks.c.identity == identity)).scalar() or 0)


class DisksRead(NamedTuple):
    """The disks, when they were read, by the database's clock, and the longest grace that nodes have reported."""

    disks: list[Disk]
    present: datetime
    grace: float | None


def read_disks(connection: Connection, *, counted: bool = True) -> DisksRead:
    """All disks as decisions see them: silence by the database's clock, room without what is promised.

    Args:
        connection: of a read.
        counted: whether the planned copies are counted; else there seem to be none.
    """
    present = connection.execute(sa.select(now())).scalar_one()  # first: what is written after it may not be read
    rows = list_disks(connection)
    in_use = [row.id for row in rows if row.state != DiskState.LOST.value]
    return disks_of_rows(rows, _promised(connection, in_use) if counted else {}, present)


def disks_of_rows(rows: Sequence[DiskRow], planned: Mapping[int, tuple[int, int]], present: datetime) -> DisksRead:
    """Disks of rows.

    Args:
        rows: of all disks.
        planned: how many copies are planned on each, and their bytes.
        present: the time before they were read, by the database's clock.
    """
    graces = [row.grace for row in rows if row.grace is not None and row.state != DiskState.LOST.value]
    found = [_as_disk(row, present, *planned.get(row.id, (0, 0))) for row in rows]
    return DisksRead(found, present, max(graces, default=None))


def _promised(connection: Connection, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Planned copies by disk; how many there are is bounded, see `peerd.storage.maintenance`."""
    sums = (
        sa.select(file_copies.c.disk_id, sa.func.count(), sa.func.sum(file_copies.c.size))
        .where(file_copies.c.disk_id.in_(numbers), file_copies.c.state == CopyState.PLANNED.value)
        .group_by(file_copies.c.disk_id)
    )
    return {disk_id: (int(copies), int(size)) for disk_id, copies, size in connection.execute(sums)}


def _as_disk(row: DiskRow, present: datetime, planned: int, promised: int) -> Disk:
    is_shared = row.kind == DiskKind.S3.value
    silence = silence_of(row.seen_at, present)
    return to_record(
        Disk,
        msgspec.structs.asdict(row),
        node=None if is_shared else row.node,
        zone=f"object store {row.id}" if is_shared else row.zone,
        free=max(0, row.free - row.reserve - promised),
        planned=planned,
        silent_for=FOREVER_SILENT if silence is None else silence,
    )


def silence_of(seen_at: datetime | None, present: datetime) -> float | None:
    """Seconds since a disk was reported last; None: never."""
    return None if seen_at is None else max(0.0, (present - seen_at).total_seconds())


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


# ---------------------------------------------------------------- counts of copies and disks


class DiskCount(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of one state on a disk, when they were counted last.

    Attributes:
        copies: how many.
        bytes: of them.
        examined: how many of them the present round of verification has passed.
        counted_at: by the database's clock.
    """

    copies: int
    bytes: int
    examined: int
    counted_at: datetime


def count_copies(connection: Connection, disk_id: int) -> list[dict[str, Any]]:
    """Count the copies of a disk, by state, as `write_counts` takes them."""
    scrubbed_to = connection.execute(sa.select(disks.c.scrubbed_to).where(disks.c.id == disk_id)).scalar()
    is_examined = file_copies.c.file_id <= (-1 if scrubbed_to is None else scrubbed_to)
    counted = (
        sa.select(
            file_copies.c.state,
            sa.func.count().label("copies"),
            sa.func.coalesce(sa.func.sum(file_copies.c.size), 0).label("bytes"),
            sa.func.coalesce(sa.func.sum(sa.case((is_examined, 1), else_=0)), 0).label("examined"),
        )
        .where(file_copies.c.disk_id == disk_id)
        .group_by(file_copies.c.state)
    )
    return [
        {name: str(value) if name == "state" else int(value) for name, value in row.items()}
        for row in connection.execute(counted).mappings()
    ]


def write_counts(connection: Connection, disk_id: int, counts: list[dict[str, Any]]) -> None:
    """Replace the counts of a disk."""
    connection.execute(sa.delete(disk_counts).where(disk_counts.c.disk_id == disk_id))
    present = connection.execute(sa.select(now())).scalar_one()
    rows = [{"disk_id": disk_id, "counted_at": present, **count} for count in counts]
    if not any(row["state"] == "stored" for row in rows):  # so that it shows that the disk was counted
        empty = {"state": "stored", "copies": 0, "bytes": 0, "examined": 0}
        rows.append({"disk_id": disk_id, "counted_at": present, **empty})
    connection.execute(sa.insert(disk_counts), rows)


def read_counts(connection: Connection) -> dict[int, dict[str, DiskCount]]:
    """The counts of all disks, by disk and state."""
    found: dict[int, dict[str, DiskCount]] = defaultdict(dict)
    for row in connection.execute(sa.select(disk_counts)).mappings():
        found[row["disk_id"]][str(row["state"])] = to_record(DiskCount, row)
    return dict(found)


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
    return [
        to_record(
            DiskCopies,
            msgspec.structs.asdict(row),
            free=max(0, row.free - row.reserve),
            silent_for=silence_of(row.seen_at, present),
            copies=counts[row.id],
        )
        for row in list_disks(connection)
    ]
