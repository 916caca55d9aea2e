"""How files are kept in the whole cluster: the disks, the files at risk, and the repair brake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, DiskState
from peerd.storage.placement.brake import GRACE, ONLINE_WITHIN, DiskView, view_disks
from peerd.store.files.buckets import BucketUsage, list_bucket_usage
from peerd.store.files.disks import DiskCount, DiskRow, disks_of_rows, get_disk, list_disks, read_counts
from peerd.store.files.risks import RISKS, FileCount, RiskCount, count_only_on, count_risks
from peerd.store.schema.tables import disks, file_buckets
from peerd.store.schema.types import now

HIGH_WATER: Final = 0.9
"""Share of a disk, without its reserve, from which on it counts as nearly full."""
LOW_WATER: Final = 0.88
"""Share below which a disk that was nearly full is so no more."""
MOST_NAMED: Final = 5


class DiskCondition(StrEnum):
    """Whether a disk can be used now."""

    ONLINE = "online"
    """The node of the disk has reported it within seconds."""
    SILENT = "silent"
    """The disk is not reported; its copies still count."""
    MISSING = "missing"
    """The disk has not been reported for the grace period: its copies do not count."""
    LOST = "lost"
    """An operator has declared the disk lost."""


class DiskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A disk, what is on it, and whether it can be used.

    Attributes:
        state: what an operator has set.
        condition: see `DiskCondition`.
        size: bytes of it.
        free: bytes of it that are free.
        reserve: bytes that stay free.
        seen_at: when its node has reported it last; None: never.
        problem: why nothing can be written to it now, or None.
        walked_for: why all its files are being checked, or None.
        scrubbed_to: up to which file its copies were examined in the present round of verification; None: to the end.
        scrub_started_at: when all its copies had been examined for the last time; None: never yet.
        counts: its copies, by state, as they were counted last; empty: they were not counted yet.
    """

    id: int
    identity: str
    node: str | None
    zone: str | None
    path: str
    url: str | None
    kind: str
    state: str
    condition: DiskCondition
    size: int
    free: int
    reserve: int
    seen_at: datetime | None
    problem: str | None
    walked_for: str | None
    scrubbed_to: int | None
    scrub_started_at: datetime | None
    counts: dict[str, DiskCount]

    @property
    def copies(self) -> int | None:
        """All its copies; None: they were not counted yet."""
        return sum(count.copies for count in self.counts.values()) if self.counts else None

    @property
    def room(self) -> int:
        """Bytes that can be written."""
        return max(0, self.free - self.reserve)

    @property
    def used_share(self) -> float | None:
        """What is used of what may be, from 0 to 1; None: it was never reported."""
        usable = self.size - self.reserve
        return min(1.0, max(0.0, 1 - self.room / usable)) if usable > 0 else None

    @property
    def is_nearly_full(self) -> bool:
        """Whether more than `HIGH_WATER` is used."""
        return self.used_share is not None and self.used_share >= HIGH_WATER

    @property
    def examined_share(self) -> float | None:
        """How many of its copies were examined in the present round, from 0 to 1; None: there are none, or not counted.

        A copy is examined when it was looked at whether its verification is due, and a task verifies it if it is.
        """
        stored = self.counts.get(CopyState.STORED.value)
        if stored is not None and stored.copies and self.scrubbed_to is None and self.scrub_started_at is not None:
            return 1.0
        return None if stored is None or not stored.copies else min(1.0, stored.examined / stored.copies)


class DisksAway(msgspec.Struct, frozen=True, kw_only=True):
    """What it means that disks are away: they are not lost, and cannot be read now.

    Attributes:
        disks: their numbers.
        files: that cannot be read now, because all their copies are on such disks.
        text: both, and when the repair begins.
    """

    disks: list[int]
    files: FileCount
    text: str


class StorageOverview(msgspec.Struct, frozen=True, kw_only=True):
    """How files are kept.

    Attributes:
        disks: by number.
        buckets: by name.
        risks: how many files have fewer copies than wanted, by danger and health.
        settling: files with copies that are to be removed.
        away: the disks that are away, if there are any.
        braked: nodes that are silent, too many at once: nothing is repaired until an operator decides. Else empty.
        grace: seconds of silence after which a disk is missing.
    """

    disks: list[DiskFigures]
    buckets: list[BucketUsage]
    risks: list[RiskCount]
    settling: int
    braked: list[str]
    grace: float
    away: DisksAway | None = None


def read_storage_overview(connection: Connection) -> StorageOverview:
    """See `StorageOverview`."""
    rows = list_disks(connection)
    view, grace = _view(connection, rows)
    counts = read_counts(connection)
    risks = count_risks(connection)
    return StorageOverview(
        disks=[_figures(row, view, counts.get(row.id, {})) for row in rows],
        buckets=list_bucket_usage(connection),
        risks=[count for count in risks if count.health in RISKS],
        settling=sum(count.files for count in risks if count.health not in RISKS),
        braked=list(view.braked),
        grace=grace,
        away=_read_away(connection, rows, view, grace),
    )


def count_last_copies(connection: Connection, disk_id: int) -> FileCount:
    """Count the files with a copy on a disk, and with none on another one that can be read now.

    Raises:
        DiskNotFound: there is none.
    """
    get_disk(connection, disk_id)
    view = read_storage_view(connection)
    return count_only_on(connection, [disk_id], [one for one in view.disks if one != disk_id and view.is_online(one)])


def read_storage_view(connection: Connection) -> DiskView:
    """The disks, without what is promised on each: to judge which copies count."""
    return _view(connection, list_disks(connection))[0]


def is_storage_used(connection: Connection) -> bool:
    """Whether there is a disk or a bucket."""
    return any(connection.execute(sa.select(table.c.id).limit(1)).first() for table in (disks, file_buckets))


def _read_away(connection: Connection, rows: Sequence[DiskRow], view: DiskView, grace: float) -> DisksAway | None:
    online = [number for number in view.disks if view.is_online(number)]
    away = [row for row in rows if row.id in view.disks and row.id not in online]
    if not away:
        return None
    unreadable = count_only_on(connection, [row.id for row in away], online)
    names = ", ".join(f"disk {row.id} of {row.node or row.path}" for row in away[:MOST_NAMED])
    more = f" and {len(away) - MOST_NAMED} more" if len(away) > MOST_NAMED else ""
    begins = min((row.seen_at + timedelta(seconds=grace) for row in away if row.seen_at is not None), default=None)
    if view.braked or view_disks(view.disks.values(), ONLINE_WITHIN).braked:
        repair = "no repair begins by itself, because the disks of too many nodes are away"
    elif view.missing or begins is None:
        repair = "repair has begun"
    else:
        repair = f"repair begins at {begins:%H:%M} UTC"
    verb = "is" if len(away) == 1 else "are"
    whole = f"all files{' that were looked at' if unreadable.at_least else ''} can be read"
    text = (
        f"{len(away)} of {len(view.disks)} disk{'' if len(view.disks) == 1 else 's'} {verb} away ({names}{more}): "
        f"{f'{unreadable} cannot be read' if unreadable.files else whole}; {repair}"
    )
    return DisksAway(disks=[row.id for row in away], files=unreadable, text=text)


def _view(connection: Connection, rows: Sequence[DiskRow]) -> tuple[DiskView, float]:
    found = disks_of_rows(rows, {}, connection.execute(sa.select(now())).scalar_one())
    grace = found.grace or GRACE
    return view_disks(found.disks, grace, found.present), grace


def _figures(row: DiskRow, view: DiskView, counts: dict[str, DiskCount]) -> DiskFigures:
    names = (
        *("id", "identity", "node", "zone", "path", "url", "size", "free", "reserve"),
        *("seen_at", "problem", "walked_for", "scrubbed_to", "scrub_started_at"),
    )
    return DiskFigures(
        **{name: getattr(row, name) for name in names},
        kind=str(row.kind),
        state=str(row.state),
        condition=_condition(row, view),
        counts=counts,
    )


def _condition(row: DiskRow, view: DiskView) -> DiskCondition:
    if row.state == DiskState.LOST.value:
        return DiskCondition.LOST
    if row.id in view.missing:
        return DiskCondition.MISSING
    return DiskCondition.ONLINE if view.is_online(row.id) else DiskCondition.SILENT
