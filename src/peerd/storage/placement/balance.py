"""How full disks are beside each other, and which copies to move from a disk that is fuller than the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from peerd.domain.files import Copy, CopyState, Disk, DiskKind, DiskState, FileNeeds
from peerd.storage.placement.brake import DiskView
from peerd.storage.placement.decision import can_take, worsens

TOLERANCE: Final = 0.05
"""The share of its size by which a disk may be fuller than all together before copies are moved from it."""


class Movable(msgspec.Struct, frozen=True):
    """A file with a stored copy on the disk from which copies are moved."""

    id: int
    needs: FileNeeds
    copies: Sequence[Copy]


class Balance:
    """How full the disks are that can get copies now: those that are active and online; object stores are never full.

    Args:
        view: the disks. What is promised to planned copies is not free.

    >>> disks = [Disk(id=1, node="a", size=100, free=10), Disk(id=2, node="b", size=300, free=300)]
    >>> balance = Balance(DiskView({disk.id: disk for disk in disks}, frozenset()))
    >>> balance.mean, balance.is_too_full(disks[0]), balance.excess(disks[0]), balance.excess(disks[1])
    (0.225, True, 67, 0)
    """

    def __init__(self, view: DiskView) -> None:
        self.disks = [disk for disk in view.disks.values() if _is_balanced(view, disk)]
        """The disks that are compared, in the order of the view."""
        size = sum(disk.size for disk in self.disks)
        self.mean = sum(disk.size - disk.free for disk in self.disks) / size if size else 0.0
        """The part of all of them together that is in use."""

    def is_too_full(self, disk: Disk) -> bool:
        """Whether copies should be moved from a disk."""
        return disk in self.disks and disk.used_share > self.mean + TOLERANCE

    def excess(self, disk: Disk) -> int:
        """Bytes by which a disk is fuller than all together."""
        return max(0, int(disk.size - disk.free - self.mean * disk.size)) if disk in self.disks else 0

    def room(self, disk: Disk) -> int:
        """Bytes by which a disk is emptier than all together."""
        return max(0, int(self.mean * disk.size - (disk.size - disk.free)))


def choose_moves(source: Disk, files: Iterable[Movable], view: DiskView, random: Random) -> Mapping[int, list[Movable]]:
    """Choose copies to move from a disk, and where to: to emptier disks, not to another copy, and not to fewer zones.

    Args:
        source: the disk from which copies are moved.
        files: each has a copy on it.
        view: the disks.
        random: decides among disks, weighted by how much emptier each is.

    Returns:
        files by the disk that gets their copy. About half of what the source has too much, because what was moved
        before may not be reported yet.
    """
    balance = Balance(view)
    excess = balance.excess(source)
    moved = 0
    room = {disk.id: balance.room(disk) for disk in balance.disks if can_take(view, disk, 0)}
    moves: dict[int, list[Movable]] = {}
    for file in files:
        size = file.needs.size
        if moved >= excess / 2:
            break
        targets = [disk for disk in balance.disks if room.get(disk.id, 0) >= size and _fits(disk, source, file, view)]
        if moved + size > excess or not targets:
            continue
        [target] = random.choices(targets, [room[disk.id] + 1 for disk in targets])
        moves.setdefault(target.id, []).append(file)
        room[target.id] -= size
        moved += size
    return moves


def _fits(disk: Disk, source: Disk, file: Movable, view: DiskView) -> bool:
    """Whether a copy on a disk is as good as that on the source."""
    if any(copy.disk_id == disk.id or copy.state is not CopyState.STORED for copy in file.copies):
        return False
    others = [view.disks[copy.disk_id] for copy in file.copies if copy.disk_id != source.id]
    if disk.site in {other.site for other in others}:
        return False
    return not worsens(source, [*others, disk], file.needs.zones)


def _is_balanced(view: DiskView, disk: Disk) -> bool:
    is_used = disk.state is DiskState.ACTIVE and disk.kind is DiskKind.FOLDER and disk.size > 0
    return is_used and view.is_online(disk.id)
