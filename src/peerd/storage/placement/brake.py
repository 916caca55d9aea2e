"""Which disks count as missing, and when too many are to be believed.

A disk whose node is silent for the grace period is missing: its copies do not count, and others are made. If many nodes
are silent at once, the cause is rather the network than so many broken nodes, and copying everything would only add
load. Then the brake holds: silent disks count as before, and an operator decides, by waiting or by declaring disks
lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from peerd.domain.files import Disk, DiskState

GRACE: Final = 900.0
"""Seconds of silence after which a disk is missing."""
MAX_MISSING_SHARE: Final = 0.25
"""The share of the nodes that may be missing; one node may always be."""
ONLINE_WITHIN: Final = 20.0
"""Seconds since its last report for which a disk can be read and written."""


class DiskView(msgspec.Struct, frozen=True):
    """The disks as decisions see them.

    Attributes:
        disks: all that are not lost, by id.
        missing: ids of those whose copies do not count.
        braked: names of the nodes that are silent while the brake holds.
        present: when they were read, by the database's clock; None: verifications are not judged by their age.
    """

    disks: dict[int, Disk]
    missing: frozenset[int]
    braked: tuple[str, ...] = ()
    present: datetime | None = None

    def is_online(self, disk_id: int) -> bool:
        """Whether it can be read now."""
        disk = self.disks.get(disk_id)
        return disk is not None and disk.silent_for <= ONLINE_WITHIN


def view_disks(disks: Iterable[Disk], grace: float = GRACE, present: datetime | None = None) -> DiskView:
    """Judge which disks are missing.

    Args:
        disks: all of the catalogue.
        grace: seconds of silence after which a disk is missing.
        present: see `DiskView`.

    >>> silent = Disk(id=1, node="a", silent_for=1000.0)
    >>> others = [Disk(id=2, node="b"), Disk(id=3, node="c")]
    >>> sorted(view_disks([silent, *others]).missing)
    [1]
    >>> view_disks([silent, Disk(id=2, node="b", silent_for=1000.0), Disk(id=3, node="c")]).braked
    ('a', 'b')
    """
    known = {disk.id: disk for disk in disks if disk.state is not DiskState.LOST}
    silent = {disk.id for disk in known.values() if disk.silent_for > grace}
    sites = {disk.site for disk in known.values()}
    silent_sites = {known[disk_id].site for disk_id in silent}
    if len(silent_sites) > max(1.0, len(sites) * MAX_MISSING_SHARE):
        return DiskView(known, frozenset(), tuple(sorted(silent_sites)), present)
    return DiskView(known, frozenset(silent), (), present)
