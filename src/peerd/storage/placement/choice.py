"""Which disks get the next copies of a file."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from peerd.domain.files import Disk, DiskState
from peerd.storage.placement.brake import DiskView


def choose_disks(
    candidates: Iterable[Disk], *, count: int, size: int, zones: int, kept: Iterable[Disk], random: Random
) -> list[Disk]:
    """Choose disks for new copies: each on a node without a copy, in new zones first, then by chance weighted by room.

    A choice by the most room alone would send all copies of a moment to one disk.

    Args:
        candidates: disks that can take the content and have no good copy.
        count: how many are wanted.
        size: bytes of the content.
        zones: on how many zones the copies are to be.
        kept: the disks of the copies that stay.
        random: decides.

    Returns:
        at most ``count`` disks; fewer if there are not as many nodes.

    >>> disks = [Disk(id=1, node="a", free=9), Disk(id=2, node="b", zone="west", free=9), Disk(id=3, node="b", free=9)]
    >>> [disk.id for disk in choose_disks(disks[1:], count=2, size=5, zones=2, kept=disks[:1], random=Random(1))]
    [2]
    """
    used = list(kept)
    chosen: list[Disk] = []
    candidates = list(candidates)
    while len(chosen) < count:
        sites = {disk.site for disk in used}
        open_to = [disk for disk in candidates if disk.site not in sites]
        if not open_to:
            break
        used_zones = {disk.zone for disk in used}
        if len(used_zones) < zones:
            open_to = [disk for disk in open_to if disk.zone not in used_zones] or open_to
        weights = [disk.free - size + 1 for disk in open_to]
        [disk] = random.choices(open_to, weights)
        used.append(disk)
        chosen.append(disk)
    return chosen


def can_take(view: DiskView, disk: Disk, size: int) -> bool:
    """Whether a disk can get a new copy of so many bytes now."""
    is_usable = disk.state is DiskState.ACTIVE and disk.problem is None
    return is_usable and view.is_online(disk.id) and disk.free >= size


def worsens(disk: Disk, others: Iterable[Disk], zones: int) -> bool:
    """Whether copies without this disk are on fewer zones than wanted, and fewer than with it.

    >>> here, there = Disk(id=1, node="a", zone="x"), Disk(id=2, node="b", zone="y")
    >>> worsens(here, [there], 2), worsens(here, [there], 1)
    (True, False)
    """
    zones_left = {other.zone for other in others}
    return disk.zone not in zones_left and len(zones_left) < zones
