"""What of storage needs a person's attention while it lasts: `peerd doctor` and the alerts say the same."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.alert import AlertKind
from peerd.domain.files import DiskKind, DiskState
from peerd.domain.units import format_duration, format_size
from peerd.storage.overview import (
    HIGH_WATER,
    LOW_WATER,
    DiskCondition,
    DiskFigures,
    StorageOverview,
    read_storage_overview,
)
from peerd.store.files.risks import LOST, RISKS, RiskCount, count_risks

BRING_BACK: Final = "bring the disks back, or declare lost those that will not come back (peerd files disks lost)"


class StorageCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person's attention while it lasts.

    Attributes:
        kind: of its alert.
        text: for people.
        remedy: what to do about it.
        disk: the number of the disk that it is about, if it is about one.
        data: for programs.
    """

    kind: AlertKind
    text: str
    remedy: str
    disk: int | None = None
    data: dict[str, object] = {}

    @property
    def key(self) -> str:
        """The name of the condition among all: two of one name are the same condition."""
        return f"{self.kind} {'' if self.disk is None else self.disk}"


def read_conditions(
    connection: Connection, before: Container[str] = ()
) -> tuple[StorageOverview, list[StorageCondition]]:
    """How files are kept, and what of it needs a person's attention.

    Args:
        connection: of a read.
        before: keys of the conditions that were found the last time: a disk that was nearly full is so until enough of
            it is free again.
    """
    overview = read_storage_overview(connection)
    found = []
    if overview.away is not None and overview.away.files.files:
        data: dict[str, object] = {"disks": overview.away.disks, "files": overview.away.files.files}
        kind = AlertKind.FILES_UNREADABLE
        found.append(StorageCondition(kind=kind, text=overview.away.text, remedy=BRING_BACK, data=data))
    if overview.braked:
        text = f"nothing is repaired: the disks of too many nodes are away at once ({', '.join(overview.braked)})"
        data = {"nodes": overview.braked}
        found.append(StorageCondition(kind=AlertKind.REPAIR_BRAKE, text=text, remedy=BRING_BACK, data=data))
    grace = format_duration(round(overview.grace))
    late = count_risks(connection, [health for health in RISKS if health != LOST], longer_than=overview.grace)
    found += _conditions_of_files([*late, *(one for one in overview.risks if one.health == LOST)], grace)
    for disk in overview.disks:
        if disk.state != DiskState.LOST.value and disk.kind == DiskKind.FOLDER.value:
            is_missing = disk.condition is DiskCondition.MISSING or disk.node in overview.braked
            found += _conditions_of(disk, grace, before, is_missing=is_missing)
    return overview, found


def _conditions_of_files(risks: list[RiskCount], grace: str) -> list[StorageCondition]:
    found = []
    counts = {health: sum(one.files for one in risks if one.health == health) for health in RISKS}
    more = " or more" if any(one.at_least for one in risks) else ""
    lost = counts.pop(LOST)
    if lost:
        text = f"{lost:,}{more} {_have(lost)} no copy any more"
        remedy = f"put what you still have again, or remove what is lost (peerd files at-risk --health {LOST})"
        found.append(StorageCondition(kind=AlertKind.FILES_LOST, text=text, remedy=remedy, data={"files": lost}))
    if files := sum(counts.values()):
        shown = ", ".join(f"{count:,} {health}" for health, count in counts.items() if count)
        text = f"{files:,}{more} {_have(files)} lacked copies for longer than {grace}: {shown}"
        data: dict[str, object] = {"files": files, "health": counts}
        remedy = "see why they wait: peerd files at-risk"
        found.append(StorageCondition(kind=AlertKind.COPIES_AT_RISK, text=text, remedy=remedy, data=data))
    return found


def _have(files: int) -> str:
    return "file has" if files == 1 else "files have"


def _conditions_of(
    disk: DiskFigures, grace: str, before: Container[str], *, is_missing: bool
) -> list[StorageCondition]:
    found = []
    place = disk.path if disk.node is None else f"{disk.path} of node {disk.node}"
    name = f"disk {disk.id} ({place})"
    data: dict[str, object] = {"node": disk.node, "path": disk.path}
    problem = disk.problem
    if is_missing:
        missing = f"it is missing: it was not reported for longer than {grace}"
        problem = missing if problem is None else f"{missing}; {problem}"
    if problem is not None:
        text = f"{name}: {problem}"
        remedy = f"bring it back, or declare it lost (peerd files disks lost {disk.id})"
        kind = AlertKind.DISK_UNUSABLE
        found.append(StorageCondition(kind=kind, text=text, remedy=remedy, disk=disk.id, data=data))
    mark = LOW_WATER if f"{AlertKind.DISK_FULL} {disk.id}" in before else HIGH_WATER
    is_full = disk.used_share is not None and disk.used_share >= mark
    if is_full and disk.state == DiskState.ACTIVE.value:
        text = f"{name} is nearly full: {format_size(disk.room)} can still be written"
        data = {**data, "room": disk.room, "size": disk.size}
        remedy = "remove files, or add disks and spread the copies (peerd files rebalance)"
        found.append(StorageCondition(kind=AlertKind.DISK_FULL, text=text, remedy=remedy, disk=disk.id, data=data))
    return found
