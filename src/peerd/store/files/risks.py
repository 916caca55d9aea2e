"""Files that are not settled: how many there are by danger and health, which, and for how long.

All statements go by the index `file_checks_listed (danger, health, created_at, file_id)`: a file has one row from the
moment in which something was to be done about it until it is settled. A cell is the files of one danger and health.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, FileState
from peerd.store.files.checks import DANGER_OF_TOMBSTONE, count_checks
from peerd.store.schema.tables import file_buckets, file_checks, file_copies, files
from peerd.store.schema.types import seconds_from_now

NOT_DECIDED: Final = "unchecked"
"""The health of a file before it is decided what the file needs."""
LOST: Final = "lost"
RISKS: Final = ("at-risk", "unreachable", LOST)
"""Healths of files with fewer copies than wanted."""
LISTED: Final = (*RISKS, "whole")
DANGERS: Final = range(1, DANGER_OF_TOMBSTONE)
MOST_COUNTED: Final = 10_000

Cell = tuple[int, str]


class FileAtRisk(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not settled.

    Attributes:
        health: how it was kept at its last check.
        danger: how many good copies it has, from 1; 8: none.
        blocked: why it cannot be helped now, or None.
        due_at: when it is checked again.
        since: when something was to be done about it for the first time.
    """

    id: int
    bucket: str
    key: str
    size: int
    health: str
    danger: int
    blocked: str | None
    due_at: datetime
    since: datetime


class FilesAtRisk(msgspec.Struct, frozen=True):
    """Counts of all files that are not settled, by health, and a page of them.

    Attributes:
        counts: by health; ``unchecked`` of those that are not decided yet. Empty where they were not asked for.
        files: those without a tombstone, the fewest good copies first; of as many, by health and age.
        next_after: what to give as ``after`` for the next page; None: this is the last one.
    """

    counts: dict[str, int]
    files: list[FileAtRisk]
    next_after: str | None = None


class RiskCount(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one danger and health.

    Attributes:
        danger: how many good copies they have, from 1; 8: none.
        health: ``at-risk``, ``unreachable``, ``lost``, or ``whole``: copies of them are to be removed.
        files: how many.
        at_least: there are so many or more, because counting ends at a limit.
    """

    danger: int
    health: str
    files: int
    at_least: bool = False


class FileCount(msgspec.Struct, frozen=True):
    """How many files; ``at_least``: or more, because counting ended at its limit."""

    files: int = 0
    at_least: bool = False

    def __str__(self) -> str:
        noun = "file" if self.files == 1 and not self.at_least else "files"
        return f"{self.files:,}{' or more' if self.at_least else ''} {noun}"


class RiskPlace(msgspec.Struct, frozen=True):
    """The place of a file in the order of `files_at_risk`."""

    danger: int
    health: str
    since: datetime
    id: int


def count_risks(
    connection: Connection,
    healths: Sequence[str] = LISTED,
    *,
    longer_than: float | None = None,
    most: int = MOST_COUNTED,
) -> list[RiskCount]:
    """Count the files that are not settled; a cell without any is left out.

    Args:
        connection: of a read.
        healths: that are counted.
        longer_than: only files that have not been settled for so many seconds.
        most: counting ends there, for each cell.
    """
    cells = [(danger, health) for danger in DANGERS for health in healths]
    counted = [_count_of_cell(number, cell, longer_than, most) for number, cell in enumerate(cells)]
    found = {number: count for number, count in connection.execute(sa.union_all(*counted))}  # noqa: C416 - typed rows
    return [
        RiskCount(danger=danger, health=health, files=count, at_least=count >= most)
        for number, (danger, health) in enumerate(cells)
        if (count := int(found.get(number, 0)))
    ]


def count_only_on(
    connection: Connection, disk_ids: Sequence[int], others: Sequence[int], most: int = MOST_COUNTED
) -> FileCount:
    """Count the files with a stored copy on one of some disks, and with none on others.

    Args:
        connection: of a read.
        disk_ids: the disks.
        others: numbers of disks.
        most: so many copies are looked at, those of each disk by the ids of their files.
    """
    found, is_cut = 0, False
    for place, disk_id in enumerate(disk_ids):
        limit = max(1, most // len(disk_ids))
        is_on_it = file_copies.c.disk_id == disk_id, file_copies.c.state == CopyState.STORED.value
        some = sa.select(file_copies.c.file_id).where(*is_on_it).order_by(file_copies.c.file_id).limit(limit).subquery()
        another = file_copies.alias()
        is_elsewhere = sa.exists().where(
            another.c.file_id == some.c.file_id,
            another.c.disk_id.in_([*others, *disk_ids[:place]]),
            another.c.state == CopyState.STORED.value,
        )
        is_alone = sa.and_(files.c.state == FileState.STORED.value, sa.not_(is_elsewhere))
        counted = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.case((is_alone, 1), else_=0)), 0))
        looked_at, alone = connection.execute(counted.select_from(some.join(files, files.c.id == some.c.file_id))).one()
        found, is_cut = found + int(alone), is_cut or looked_at >= limit
    return FileCount(found, is_cut)


def files_at_risk(
    connection: Connection, health: str | None, after: RiskPlace | None, limit: int, *, counted: bool = True
) -> FilesAtRisk:
    """Counts of the files that are not settled, and a page of them.

    Args:
        connection: of a read.
        health: only files of this one; None: of any but those that were put or deleted just now.
        after: place of the last file of the page before.
        limit: the most files.
        counted: whether all are counted, which takes longer the more there are.
    """
    counts: dict[str, int] = defaultdict(int)
    for row in count_checks(connection) if counted else ():
        counts[row["health"] or NOT_DECIDED] += int(row["files"])
    found: list[FileAtRisk] = []
    for cell in _cells_from(connection, LISTED if health is None else (health,), after):
        found += _files_of_cell(connection, cell, after, limit + 1 - len(found))
        if len(found) > limit:
            break
    page = found[:limit]
    return FilesAtRisk(dict(counts), page, _cursor(page[-1]) if len(found) > limit else None)


def parse_place(text: str) -> RiskPlace:
    """The place that ``next_after`` names; raises ValueError for other texts."""
    danger, health, since, file_id = text.split(" ")
    place = RiskPlace(int(danger), health, datetime.fromisoformat(since), int(file_id))
    if place.danger not in DANGERS or health not in {*LISTED, NOT_DECIDED} or place.since.tzinfo is None:
        raise ValueError(text)
    if not 0 <= place.id < 1 << 63:
        raise ValueError(text)
    return place


def _cursor(last: FileAtRisk) -> str:
    return f"{last.danger} {last.health} {last.since.isoformat()} {last.id}"


def _cells_from(connection: Connection, healths: Sequence[str], after: RiskPlace | None) -> Iterable[Cell]:
    """The cells that have files, from the cell of a place on."""
    filled = [(count.danger, count.health) for count in count_risks(connection, healths, most=1)]
    if after is None:
        return filled
    order = (*LISTED, NOT_DECIDED)
    first = after.danger, order.index(after.health)
    return [(danger, health) for danger, health in filled if (danger, order.index(health)) >= first]


def _count_of_cell(number: int, cell: Cell, longer_than: float | None, most: int) -> sa.Select[int, int]:
    conditions = _is_of(cell)
    if longer_than is not None:
        conditions.append(file_checks.c.created_at < seconds_from_now(-longer_than))
    # In the order of the index: else PostgreSQL may read the table for the first few of many.
    some = sa.select(file_checks.c.file_id).where(*conditions).order_by(file_checks.c.created_at).limit(most).subquery()
    return sa.select(sa.literal(number), sa.func.count()).select_from(some)


def _files_of_cell(connection: Connection, cell: Cell, after: RiskPlace | None, limit: int) -> list[FileAtRisk]:
    conditions = _is_of(cell)
    if after is not None and (after.danger, after.health) == cell:
        is_behind = sa.or_(file_checks.c.created_at > after.since, file_checks.c.file_id > after.id)
        conditions += [file_checks.c.created_at >= after.since, is_behind]
    listed = (
        sa.select(
            file_checks.c.file_id.label("id"),
            file_checks.c.danger,
            file_checks.c.blocked,
            file_checks.c.due_at,
            file_checks.c.created_at.label("since"),
        )
        .where(*conditions)
        .order_by(file_checks.c.created_at, file_checks.c.file_id)
        .limit(limit)
    )
    rows = {row["id"]: dict(row) for row in connection.execute(listed).mappings()}
    named = (
        sa.select(files.c.id, file_buckets.c.name.label("bucket"), files.c.file_key.label("key"), files.c.size)
        .join(file_buckets, file_buckets.c.id == files.c.bucket_id)
        .where(files.c.id.in_(list(rows)))
    )
    names = {row["id"]: dict(row) for row in connection.execute(named).mappings()} if rows else {}
    both = [{**row, **names[file_id], "health": cell[1]} for file_id, row in rows.items() if file_id in names]
    return [FileAtRisk(**values) for values in both]


def _is_of(cell: Cell) -> list[sa.ColumnElement[bool]]:
    danger, health = cell
    is_of_health = file_checks.c.health.is_(None) if health == NOT_DECIDED else file_checks.c.health == health
    return [file_checks.c.danger == danger, is_of_health]
