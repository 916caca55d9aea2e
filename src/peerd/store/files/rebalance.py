"""Disks from which copies are moved to emptier ones: which there are, and how far each is.

As with the walks of `peerd.store.files.walks`, the place is in the row of the disk, so that any node goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState
from peerd.store.files.checks import request_checks
from peerd.store.schema.tables import disks, file_checks, file_copies

REBALANCE: Final = "rebalance"
MANY_UNSETTLED: Final = 1_000
"""Files; while so many are not settled, copies are made where they lack before any is moved."""
IS_MOVED: Final = "whole"
"""The health of a file that has all its copies, and one more to be made or removed."""


class RebalancedDisk(NamedTuple):
    """A disk, and behind which file the next ones are."""

    id: int
    after: int


def begin_rebalance(connection: Connection, disk_ids: Collection[int]) -> None:
    """Move copies from these disks from now on, unless they are walked for another reason."""
    is_free = sa.or_(disks.c.walked_for.is_(None), disks.c.walked_for == REBALANCE)
    values = {"walked_for": REBALANCE, "walked_to": None}
    connection.execute(sa.update(disks).where(disks.c.id.in_(sorted(disk_ids)), is_free).values(values))


def stop_rebalance(connection: Connection) -> int:
    """Move no more copies; return from how many disks some were moved. Moves that have begun are finished."""
    stopped = sa.update(disks).where(disks.c.walked_for == REBALANCE).values(walked_for=None, walked_to=None)
    return connection.execute(stopped).rowcount


def lock_rebalanced_disk(connection: Connection) -> RebalancedDisk | None:
    """A disk from which copies are moved, locked until the transaction ends; None: there is none that is not locked."""
    found = sa.select(disks.c.id, disks.c.walked_to).where(disks.c.walked_for == REBALANCE)
    locked = found.order_by(disks.c.id).limit(1).with_for_update(skip_locked=True)
    row = connection.execute(locked).first()
    return None if row is None else RebalancedDisk(row.id, -1 if row.walked_to is None else row.walked_to)


def rebalance_goes_on(connection: Connection, disk_id: int, after: int | None) -> None:
    """Remember behind which file the next ones of a disk are; None: it is done."""
    place = {"walked_for": None, "walked_to": None} if after is None else {"walked_to": after}
    is_it = disks.c.id == disk_id, disks.c.walked_for == REBALANCE
    connection.execute(sa.update(disks).where(*is_it).values(place))


def is_repairing(connection: Connection) -> bool:
    """Whether many files are not settled."""
    unsettled = sa.select(file_checks.c.file_id).limit(MANY_UNSETTLED).subquery()
    counted = sa.select(sa.func.count()).select_from(unsettled)
    return int(connection.execute(counted).scalar_one()) >= MANY_UNSETTLED


def has_moves_underway(connection: Connection, disk_id: int) -> bool:
    """Whether a file with a copy on a disk has one more to be made or removed. Call it if few files are not settled."""
    moved = (
        sa.select(file_checks.c.file_id)
        .join(file_copies, sa.and_(file_copies.c.file_id == file_checks.c.file_id, file_copies.c.disk_id == disk_id))
        .where(file_checks.c.health == IS_MOVED)
        .limit(1)
    )
    return connection.execute(moved).first() is not None


def files_at_rest(connection: Connection, disk_id: int, after: int, limit: int) -> list[int]:
    """The next files with a stored copy on a disk that are settled, in the order of their ids."""
    found = (
        sa.select(file_copies.c.file_id)
        .outerjoin(file_checks, file_checks.c.file_id == file_copies.c.file_id)
        .where(
            file_copies.c.disk_id == disk_id,
            file_copies.c.state == CopyState.STORED.value,
            file_copies.c.file_id > after,
            file_checks.c.file_id.is_(None),
        )
        .order_by(file_copies.c.file_id)
        .limit(limit)
    )
    return list(connection.execute(found).scalars())


def hold_for_move(connection: Connection, dangers: Mapping[int, int]) -> None:
    """Request checks of files that are moved, and mark them, so that the next moves wait for them."""
    request_checks(connection, dangers)
    are_they = file_checks.c.file_id.in_(sorted(dangers))
    if dangers:
        connection.execute(sa.update(file_checks).where(are_they).values(health=IS_MOVED))
