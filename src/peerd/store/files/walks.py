"""Walks over the copies of a disk: to check all its files, or to move copies to emptier disks.

A walk is a place in the row of its disk. Any node takes the next batch of any walk, so it goes on when a node dies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, DiskState
from peerd.store.files.buckets import Bucket
from peerd.store.files.checks import DANGER_WITHOUT_COPY, request_checks
from peerd.store.schema.tables import disks, file_checks, file_copies, files
from peerd.store.schema.types import now, seconds_from_now

MISSING: Final = "missing"
ROWS_OF_WALK: Final = 2_000
"""Copies that are examined at once: whether their verification is due."""
REBALANCE: Final = "rebalance"
MANY_UNSETTLED: Final = 1_000
"""Files; while so many are not settled, copies are made where they lack before any is moved."""
IS_MOVED: Final = "whole"
"""The health of a file that has all its copies, and one more to be made or removed."""


def begin_walks_of_missing(connection: Connection, disk_ids: Collection[int]) -> None:
    """Begin a walk over each disk that has become missing."""
    is_new = disks.c.id.in_(sorted(disk_ids)), disks.c.missing_at.is_(None)
    values = {"missing_at": now(), "walked_for": MISSING, "walked_to": None}
    connection.execute(sa.update(disks).where(*is_new).values(values))


def walk_again(connection: Connection) -> None:
    """Walk once more over disks that are drained or lost, and have copies of files that wait for no check.

    A process that had read the disks before can have entered a copy behind the walk, or settled a file by it.
    """
    forgotten = (
        sa.select(file_copies.c.file_id)
        .outerjoin(file_checks, file_checks.c.file_id == file_copies.c.file_id)
        .where(file_copies.c.disk_id == disks.c.id, file_checks.c.file_id.is_(None))
        .exists()
    )
    for state in (DiskState.DRAIN, DiskState.LOST):
        is_left = disks.c.state == state.value, disks.c.walked_for.is_(None), forgotten
        numbers = connection.execute(sa.select(disks.c.id).where(*is_left)).scalars().all()
        values = {"walked_for": state.value, "walked_to": None}
        is_free = disks.c.id.in_(numbers), disks.c.state == state.value, disks.c.walked_for.is_(None)
        if numbers:
            connection.execute(sa.update(disks).where(*is_free).values(values))


def walk_on(connection: Connection, limit: int, missing: Collection[int] = ()) -> int | None:
    """Request checks of the next files of a walk; return how many.

    Args:
        connection: in a transaction.
        limit: the most files.
        missing: disks whose copies do not count.

    Returns:
        the number of files; None: there is no walk, or other nodes are at all of them.
    """
    columns = disks.c.id, disks.c.walked_for, disks.c.walked_to
    is_walked = disks.c.walked_for.is_not(None), disks.c.walked_for != REBALANCE
    walked = sa.select(*columns).where(*is_walked).order_by(disks.c.id).limit(1)
    row = connection.execute(walked.with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    file_ids = files_on_disk(connection, row.id, -1 if row.walked_to is None else row.walked_to, limit)
    without = {row.id} if row.walked_for in (MISSING, DiskState.LOST) else set()
    request_checks(connection, _dangers(connection, file_ids, without | set(missing)))
    is_over = len(file_ids) < limit
    place = {"walked_for": None, "walked_to": None} if is_over else {"walked_to": file_ids[-1]}
    connection.execute(sa.update(disks).where(disks.c.id == row.id).values(place))
    return len(file_ids)


def files_on_disk(
    connection: Connection,
    disk_id: int,
    after: int,
    limit: int,
    states: Collection[CopyState] = tuple(CopyState),
    *,
    settled: bool = False,
) -> list[int]:
    """The files with a copy on a disk in one of these states, after a file, in the order of their ids.

    With ``settled`` they are those that have no check.
    """
    found: list[int] = []
    for state in states:
        of_state = sa.select(file_copies.c.file_id).where(
            file_copies.c.disk_id == disk_id, file_copies.c.state == state.value, file_copies.c.file_id > after
        )
        if settled:
            of_state = of_state.outerjoin(file_checks, file_checks.c.file_id == file_copies.c.file_id)
            of_state = of_state.where(file_checks.c.file_id.is_(None))
        found += connection.execute(of_state.order_by(file_copies.c.file_id).limit(limit)).scalars()
    return sorted(found)[:limit]


def _dangers(connection: Connection, file_ids: Sequence[int], without: Collection[int]) -> dict[int, int]:
    """The danger of files: how many stored copies they have, but on these disks."""
    dangers = dict.fromkeys(file_ids, DANGER_WITHOUT_COPY)
    counted = sa.select(file_copies.c.file_id, sa.func.count()).where(
        file_copies.c.file_id.in_(file_ids),
        file_copies.c.state == CopyState.STORED.value,
        file_copies.c.disk_id.not_in(sorted(without)),
    )
    for file_id, stored in connection.execute(counted.group_by(file_copies.c.file_id)):
        dangers[file_id] = min(stored, DANGER_WITHOUT_COPY - 1)
    return dangers


class ToVerify(msgspec.Struct, frozen=True):
    """Copies of a disk whose verification is due, and where to go on."""

    file_ids: list[int]
    next_after: int | None


def next_to_verify(connection: Connection, disk_id: int, every: float, limit: int) -> ToVerify:
    """The next stored copies of a disk that were verified longer than ``every`` seconds ago, or before it was missing.

    Of many copies that are not due, few are read at once; so ``next_after`` moves on also where none is due. None: the
    end of the disk was reached.
    """
    disk = connection.execute(sa.select(disks.c.scrubbed_to, disks.c.verified_since).where(disks.c.id == disk_id)).one()
    is_due = sa.or_(
        file_copies.c.verified_at.is_(None),
        file_copies.c.verified_at < seconds_from_now(-every),
        sa.false() if disk.verified_since is None else file_copies.c.verified_at < disk.verified_since,
    )
    walked = (
        sa.select(file_copies.c.file_id, is_due.label("is_due"))
        .where(
            file_copies.c.disk_id == disk_id,
            file_copies.c.state == CopyState.STORED.value,
            file_copies.c.file_id > (-1 if disk.scrubbed_to is None else disk.scrubbed_to),
        )
        .order_by(file_copies.c.file_id)
        .limit(ROWS_OF_WALK)
    )
    due: list[int] = []
    rows = connection.execute(walked).all()
    for row in rows:
        if row.is_due:
            due.append(row.file_id)
        if len(due) == limit:
            return ToVerify(due, row.file_id)
    return ToVerify(due, rows[-1].file_id if len(rows) == ROWS_OF_WALK else None)


def scrub_goes_on(connection: Connection, disk_id: int, after: int | None) -> None:
    """Remember up to which file the copies of a disk were examined; None: to the end, so from the beginning again."""
    values = {"scrubbed_to": after, **({"scrub_started_at": now()} if after is None else {})}
    connection.execute(sa.update(disks).where(disks.c.id == disk_id).values(values))


# ---------------------------------------------------------------- rebalance


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
    return files_on_disk(connection, disk_id, after, limit, (CopyState.STORED,), settled=True)


def hold_for_move(connection: Connection, dangers: Mapping[int, int]) -> None:
    """Request checks of files that are moved, and mark them, so that the next moves wait for them."""
    request_checks(connection, dangers)
    are_they = file_checks.c.file_id.in_(sorted(dangers))
    if dangers:
        connection.execute(sa.update(file_checks).where(are_they).values(health=IS_MOVED))


# ---------------------------------------------------------------- all files


class FilesWalked(msgspec.Struct, frozen=True):
    """A batch of files, with the disks of the stored copies of each, and where to go on; None: these were the last."""

    copies: dict[int, list[int]]
    next_after: int | None


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
