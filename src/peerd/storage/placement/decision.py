"""What a file needs: the copies to make and those to remove.

The decision is level-triggered: it looks at the copies as they are and compares them with what the class wants,
and knows nothing of what has happened before. So it can be taken again at any time, by any node, and gives nothing to
do when all is well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from peerd.domain.files import Copy, CopyState, Disk, DiskState, FileNeeds
from peerd.storage.placement.brake import DiskView

VERIFIED_BEFORE_REMOVAL: Final = timedelta(hours=1)
"""A good copy is removed only if the copies that stay were verified within this time."""


class FileHealth(StrEnum):
    """How a file is kept."""

    WHOLE = "whole"
    """The file has its copies."""
    AT_RISK = "at-risk"
    """The file has fewer copies, and at least one."""
    UNREACHABLE = "unreachable"
    """No copy counts, but a disk that is missing or not verified yet may still have one."""
    LOST = "lost"
    """No disk has a copy."""
    DELETED = "deleted"
    """A tombstone with copies that are to be removed."""
    GONE = "gone"
    """A tombstone without a copy: its row can be deleted."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a file needs.

    Attributes:
        health: how it is kept.
        good: how many nodes have a copy that counts.
        copy_to: disks that get a copy.
        remove_from: disks whose copy is to be removed.
        verify: disks whose copy is to be verified before a good one is removed elsewhere.
        forget: disks whose copy does not exist any more, so that its row is to be deleted.
        is_settled: whether nothing remains to be done.
        blocked: why something cannot be done now, or None.
    """

    health: FileHealth
    good: int = 0
    copy_to: tuple[int, ...] = ()
    remove_from: tuple[int, ...] = ()
    verify: tuple[int, ...] = ()
    forget: tuple[int, ...] = ()
    is_settled: bool = False
    blocked: str | None = None


def decide(file: FileNeeds, copies: Sequence[Copy], view: DiskView, random: Random) -> Decision:
    """Decide what a file needs.

    Args:
        file: its size, and the copies and zones that its class wants.
        copies: all of the catalogue.
        view: the disks.
        random: decides among disks that are equally good.

    >>> view = DiskView({n: Disk(id=n, node=f"node-{n}", free=100) for n in (1, 2)}, frozenset())
    >>> decision = decide(FileNeeds(size=5, copies=2), [Copy(1, CopyState.STORED)], view, Random(1))
    >>> decision.health.value, decision.good, decision.copy_to
    ('at-risk', 1, (2,))
    """
    if file.is_deleted:
        return _decide_removal(copies, view)
    return _Copies(file, copies, view).decide(random)


class Settled:
    """The decisions on settled files, which are the same for files of any size whose copies are alike.

    Most files that are checked after a copy was made are on the same disks. For one view.

    Args:
        view: the disks.
    """

    def __init__(self, view: DiskView) -> None:
        self._view = view
        self._known: dict[tuple[object, ...], Decision] = {}

    def decide(self, file: FileNeeds, copies: Sequence[Copy], random: Random) -> Decision:
        """See the function `decide`."""
        key = (file.copies, file.zones, file.object_copies, file.is_deleted, *map(self._likeness, copies))
        known = self._known.get(key)
        if known is None:
            known = decide(file, copies, self._view, random)
            # Of a settled file nothing is chosen: its size and chance have no part in it.
            if known.is_settled:
                self._known[key] = known
        return known

    def _likeness(self, copy: Copy) -> tuple[object, ...]:
        """What a decision sees of a copy."""
        return copy.disk_id, copy.state, counts(copy, self._view)


def counts(copy: Copy, view: DiskView) -> bool:
    """Whether a copy counts: it is stored, on a disk that is not missing, and verified since the disk was missing."""
    disk = view.disks.get(copy.disk_id)
    if copy.state is not CopyState.STORED or disk is None or disk.id in view.missing:
        return False
    if disk.verified_since is None:
        return True
    return copy.verified_at is not None and copy.verified_at >= disk.verified_since


def _decide_removal(copies: Sequence[Copy], view: DiskView) -> Decision:
    forget = tuple(copy.disk_id for copy in copies if copy.disk_id not in view.disks)
    left = [copy.disk_id for copy in copies if copy.disk_id in view.disks]
    if not left:
        return Decision(health=FileHealth.GONE, forget=forget, is_settled=True)
    away = [disk_id for disk_id in left if not view.is_online(disk_id)]
    return Decision(
        health=FileHealth.DELETED,
        remove_from=tuple(disk_id for disk_id in left if disk_id not in away),
        forget=forget,
        blocked=f"{len(away)} of its disks are away" if away else None,
    )


class _Part(msgspec.Struct, frozen=True):
    """How many of the copies are on which disks.

    Attributes:
        copies: how many.
        is_shared: in object stores, or in folders; None: anywhere.
    """

    copies: int
    is_shared: bool | None = None

    def of(self, disks: Iterable[Disk]) -> list[Disk]:
        """The disks that are meant, among these."""
        return [disk for disk in disks if self.is_shared is None or disk.is_shared is self.is_shared]

    def short(self, disks: Iterable[Disk]) -> int:
        """How many copies are missing, when these disks have one each."""
        return self.copies - len(_sites(self.of(disks)))


def _parts_of(file: FileNeeds) -> list[_Part]:
    """The parts of the copies: in folders and in object stores, if the class says how many."""
    if file.object_copies is None:
        return [_Part(file.copies)]
    return [_Part(file.copies - file.object_copies, is_shared=False), _Part(file.object_copies, is_shared=True)]


class _Copies:
    """The copies of a file that is not deleted, by what they are good for."""

    def __init__(self, file: FileNeeds, copies: Sequence[Copy], view: DiskView) -> None:
        self._file = file
        self._parts = _parts_of(file)
        self._copies = copies
        self._view = view
        self._good = [view.disks[copy.disk_id] for copy in copies if counts(copy, view)]
        self._lasting = [disk for disk in self._good if disk.state is not DiskState.DRAIN]
        self._underway = [view.disks[copy.disk_id] for copy in copies if self._is_underway(copy)]

    def decide(self, random: Random) -> Decision:
        chosen = self._choose(random) if self._good else []
        short = self._short([*self._lasting, *self._underway, *chosen])
        is_complete = not (chosen or self._underway or short > 0)
        surplus = self._surplus() if is_complete else []
        unverified = self._not_verified_lately(surplus)
        bad = self._in(CopyState.BAD) if is_complete else []
        removable = [*([] if unverified else surplus), *bad, *self._in(CopyState.REMOVING)]
        remove = [disk_id for disk_id in removable if self._view.is_online(disk_id)]
        health = self._health()
        return Decision(
            health=health,
            good=len(_sites(self._good)),
            copy_to=tuple(disk.id for disk in chosen),
            remove_from=tuple(remove),
            verify=tuple(unverified),
            forget=self._forgotten(),
            is_settled=health is FileHealth.WHOLE
            and not (chosen or self._underway or surplus or remove or self._unverified),
            blocked=self._obstacle(short),
        )

    def _is_underway(self, copy: Copy) -> bool:
        disk = self._view.disks.get(copy.disk_id)
        if copy.state is not CopyState.PLANNED or disk is None or disk.id in self._view.missing:
            return False
        return disk.state is DiskState.ACTIVE

    def _forgotten(self) -> tuple[int, ...]:
        """Disks whose copy does not exist; stored ones only if another is good, or none is left to hope for."""
        gone = [copy for copy in self._copies if self._is_gone(copy)]
        if not self._good and len(gone) < len(self._copies):
            gone = [copy for copy in gone if copy.state is CopyState.PLANNED]
        return tuple(copy.disk_id for copy in gone)

    def _is_gone(self, copy: Copy) -> bool:
        """Whether its disk is lost, or it was planned on a disk that takes none any more."""
        if copy.disk_id not in self._view.disks:
            return True
        return copy.state is CopyState.PLANNED and not self._is_underway(copy)

    def _short(self, disks: Sequence[Disk]) -> int:
        """How many copies are missing, when these disks have one each."""
        return sum(max(0, part.short(disks)) for part in self._parts)

    @property
    def _wanted_zones(self) -> int:
        """How many zones the file is kept in: as many as its class wants, or as there are."""
        usable = [disk for disk in self._view.disks.values() if disk.state is DiskState.ACTIVE]
        return min(self._file.zones, len({disk.zone for disk in [*usable, *self._lasting]}))

    @property
    def _unverified(self) -> bool:
        """Whether a stored copy is on a disk that is missing, or that was missing and has not been verified since."""
        return any(
            copy.state is CopyState.STORED and copy.disk_id in self._view.disks and not counts(copy, self._view)
            for copy in self._copies
        )

    def _choose(self, random: Random) -> list[Disk]:
        kept = [*self._lasting, *self._underway]
        chosen: list[Disk] = []
        for part in self._parts:
            for candidates in self._candidates([part]):
                chosen += self._choose_among(candidates, part.short([*kept, *chosen]), [*kept, *chosen], random)
        if chosen or self._short(kept) > 0:
            return chosen
        for candidates in self._candidates([part for part in self._parts if part.copies]):
            zones = _zones([*kept, *chosen])
            in_new_zones = [disk for disk in candidates if disk.zone not in zones]
            chosen += self._choose_among(in_new_zones, self._wanted_zones - len(zones), [*kept, *chosen], random)
        return chosen

    def _choose_among(self, candidates: list[Disk], count: int, kept: list[Disk], random: Random) -> list[Disk]:
        return choose_disks(
            candidates, count=count, size=self._file.size, zones=self._wanted_zones, kept=kept, random=random
        )

    def _candidates(self, parts: Sequence[_Part]) -> Iterator[list[Disk]]:
        """Disks that can take a copy of these parts: those without one, then those whose copy was bad."""
        usable = [disk for disk in self._view.disks.values() if can_take(self._view, disk, self._file.size)]
        usable = [disk for disk in usable if any(part.of([disk]) for part in parts)]
        with_copies = {copy.disk_id for copy in self._copies}
        yield [disk for disk in usable if disk.id not in with_copies]
        yield [disk for disk in usable if disk.id in self._in(CopyState.BAD)]

    def _surplus(self) -> list[int]:
        """Good copies on disks that are drained, and more than are wanted: the fullest disks first."""
        kept = list(self._lasting)
        surplus: list[int] = []
        for disk in sorted(self._lasting, key=lambda disk: (-disk.used_share, disk.free, disk.id)):
            others = [other for other in kept if other is not disk]
            is_double = disk.site in _sites(others)
            if is_double or (not self._needs(disk, others) and not worsens(disk, others, self._wanted_zones)):
                kept = others
                surplus.append(disk.id)
        drained = [disk.id for disk in self._good if disk.state is DiskState.DRAIN]
        return [*surplus, *drained]

    def _needs(self, disk: Disk, others: Sequence[Disk]) -> bool:
        """Whether a copy is needed on a disk, beside those on others."""
        return any(part.short(others) > 0 for part in self._parts if part.of([disk]))

    def _not_verified_lately(self, surplus: Sequence[int]) -> list[int]:
        """The disks of the copies that stay when others are removed, and that were not verified shortly before."""
        if not surplus or self._view.present is None:
            return []
        since = self._view.present - VERIFIED_BEFORE_REMOVAL
        stay = [copy for copy in self._copies if copy.disk_id not in surplus and counts(copy, self._view)]
        return [copy.disk_id for copy in stay if copy.verified_at is None or copy.verified_at < since]

    def _in(self, state: CopyState) -> list[int]:
        """The disks whose copy is in this state."""
        return [copy.disk_id for copy in self._copies if copy.state is state]

    def _health(self) -> FileHealth:
        if self._short(self._lasting) == 0 and len(_zones(self._lasting)) >= self._wanted_zones:
            return FileHealth.WHOLE
        if self._good:
            return FileHealth.AT_RISK
        return FileHealth.UNREACHABLE if self._unverified else FileHealth.LOST

    def _obstacle(self, short: int) -> str | None:
        if not any(self._view.is_online(disk.id) for disk in self._good):
            return "all its copies are on disks that are away" if self._good else "no copy can be read"
        if short > 0:
            shared = [part for part in self._parts if part.is_shared and part.short(self._good) > 0]
            where = "object store has" if shared else "other node has a disk with"
            away = sum(not self._view.is_online(disk_id) for disk_id in self._view.disks)
            what = f"; {away} {'is' if away == 1 else 'are'} away" if away else ""
            return f"no {where} room for {short} more{what}"
        return None


def _sites(disks: Iterable[Disk]) -> set[str]:
    return {disk.site for disk in disks}


def _zones(disks: Iterable[Disk]) -> set[str | None]:
    return {disk.zone for disk in disks}


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
