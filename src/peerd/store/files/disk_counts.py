"""Counts of the copies of each disk by state: one manager counts for the whole cluster, and all others read its result.

Counting reads the entries of one disk in the index `file_copies_disk`, and no rows. It takes longer the more copies
the disk has; so it is not done for each page that is shown or metric that is scraped.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import disk_counts, disks, file_copies


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
    for row in connection.execute(sa.select(disk_counts)):
        count = DiskCount(copies=row.copies, bytes=row.bytes, examined=row.examined, counted_at=row.counted_at)
        found[row.disk_id][str(row.state)] = count
    return dict(found)
