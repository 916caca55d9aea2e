"""Rebalancing: copies are moved from disks that are fuller than the others, some at a time.

A move is a copy more, on an emptier disk. When it is stored, the file has a surplus copy, and its check removes that
from the fullest of its disks, after the others were verified. So no file ever has fewer copies because of it. The next
copies of a disk are moved when the files of the last ones are settled, and none while many files wait to be repaired.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.storage.checking import LOW_PRIORITY, enqueue_copies
from peerd.storage.placement.balance import Balance, Movable, choose_moves
from peerd.storage.placement.brake import DiskView
from peerd.store.files.checks import read_copies, read_files_to_check
from peerd.store.files.walks import (
    files_at_rest,
    has_moves_underway,
    hold_for_move,
    is_repairing,
    lock_rebalanced_disk,
    rebalance_goes_on,
)

FILES_OF_STEP: Final = 500
MAX_MOVED: Final = 8 * 1024**3
"""Bytes that are moved from a disk at a time, or one file."""


class Moved(msgspec.Struct, frozen=True):
    """What a step has begun: how many files are moved from a disk, and whether it is balanced now."""

    disk_id: int
    files: int
    is_last: bool = False


def move_on(connection: Connection, view: DiskView, random: Random, limit: int = FILES_OF_STEP) -> Moved | None:
    """Begin the next moves of a disk; None: no disk is rebalanced, its last moves are not done, or repair goes first.

    Args:
        connection: in a transaction.
        view: the disks.
        random: decides among disks.
        limit: the most files that are looked at.
    """
    if view.braked or is_repairing(connection):
        return None
    row = lock_rebalanced_disk(connection)
    if row is None or has_moves_underway(connection, row.id):
        return None
    disk = view.disks.get(row.id)
    if disk is None or not Balance(view).is_too_full(disk):
        rebalance_goes_on(connection, row.id, None)
        return Moved(row.id, 0, is_last=True)
    ids = files_at_rest(connection, disk.id, row.after, limit)
    moves = choose_moves(disk, _up_to(_read(connection, ids), MAX_MOVED), view, random)
    chosen = {file.id for files in moves.values() for file in files}
    unchanged = _hold_unchanged(connection, [file for files in moves.values() for file in files])
    sizes = {
        (target, LOW_PRIORITY): {file.id: file.needs.size for file in files if file.id in unchanged}
        for target, files in moves.items()
    }
    enqueue_copies(connection, view, sizes)
    is_last = len(ids) < limit and not chosen
    place = (max(chosen) if chosen else ids[-1]) if ids else row.after
    rebalance_goes_on(connection, row.id, None if is_last else place)
    return Moved(row.id, len(unchanged), is_last=is_last)


def pass_over(connection: Connection) -> None:
    """Go on behind the next file of a disk that is rebalanced: what it needs cannot be decided."""
    row = lock_rebalanced_disk(connection)
    if row is not None and (ids := files_at_rest(connection, row.id, row.after, 1)):
        rebalance_goes_on(connection, row.id, ids[0])


def _read(connection: Connection, ids: list[int]) -> list[Movable]:
    copies = read_copies(connection, ids)
    found = {file.id: file for file in read_files_to_check(connection, ids)}
    return [Movable(one, found[one].needs, [row.copy for row in copies[one]]) for one in ids if one in found]


def _up_to(files: list[Movable], size: int) -> list[Movable]:
    """The first of the files that have so many bytes together, at least one."""
    taken: list[Movable] = []
    for file in files:
        size -= file.needs.size
        if taken and size < 0:
            break
        taken.append(file)
    return taken


def _hold_unchanged(connection: Connection, files: list[Movable]) -> set[int]:
    """Request checks of files, which locks them, and return those whose copies are still what was decided by."""
    ids = sorted(file.id for file in files)
    hold_for_move(connection, {file.id: len(file.copies) for file in files})
    copies = read_copies(connection, ids)
    return {file.id for file in files if [row.copy for row in copies[file.id]] == list(file.copies)}
