"""Samples storage for the whole cluster: what needs a person's attention, and how many copies each disk has.

The manager of the first active node does it for all, as `QueueSampler` does with queues; where there are no disks,
nothing is read. A condition is reported at its begin, each hour while it lasts, and at its end. The first sample of a
manager goes on with what the one before it has reported, which is in the table of alerts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.alert import AlertKind
from peerd.domain.alert_record import ABOUT_DISKS, OF_STORAGE
from peerd.domain.duration import format_duration
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.files import DiskKind, DiskState
from peerd.domain.ongoing_conditions import OngoingConditions
from peerd.domain.size import format_size
from peerd.runtime.observability.events import (
    ComponentFailed,
    EventBus,
    StorageConditionEnded,
    StorageConditionFound,
)
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.storage.overview import (
    HIGH_WATER,
    LOW_WATER,
    DiskCondition,
    DiskFigures,
    StorageOverview,
    read_storage_overview,
)
from peerd.store.alerts.reading import open_conditions
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.files.disk_counts import count_copies, write_counts
from peerd.store.files.risks import LOST, RISKS, RiskCount, count_risks
from peerd.store.maintenance.due import DueMaintenance

SAMPLE_EVERY: Final = 15.0
"""Seconds between two samples."""
REST_RATIO: Final = 100.0
"""A pause after counting is so many times as long as the counting: it takes 1 % of the time."""
CONFIRM_AFTER: Final = 20.0
"""Seconds for which a disk must have had a problem before it is reported: a check that is slow once needs no person."""
REPEAT_EVERY: Final = 3_600.0
"""Seconds between two reports of a condition that lasts."""
MAX_RESUMED: Final = 1_000
COMPONENT: Final = "storage sample"


class StorageCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person's attention while it lasts.

    Attributes:
        kind: of its alert.
        text: for people.
        disk: the number of the disk that it is about, if it is about one.
        data: for programs.
    """

    kind: AlertKind
    text: str
    disk: int | None = None
    data: dict[str, object] = {}

    @property
    def key(self) -> str:
        """Its name among all: two of one name are the same condition."""
        return f"{self.kind} {'' if self.disk is None else self.disk}"


class StorageSampler:
    """The sampler of one manager.

    Args:
        database: of the manager.
        events: what is found.
        clock: monotonic seconds.
    """

    def __init__(self, database: Database, events: EventBus, clock: Callable[[], float]) -> None:
        self._threads = DatabaseThreads(database, threads=1)
        self._events = events
        self._clock = clock
        self._reports: OngoingConditions | None = None
        """What is reported; None: another manager reports, or it has not been read what that one did."""
        self._found_at: dict[str, float] = {}
        """When each condition that holds was found first."""
        self._sampling: asyncio.Task[None] | None = None
        self._next_at = 0.0
        self._count_at = 0.0

    def start_if_due(self, due: DueMaintenance, node_id: int) -> None:
        """Begin a sample, if there are disks, it is time for one, and this node is the first one."""
        if self._sampling is not None and not self._sampling.done():
            return
        if due.first_node != node_id:
            self._reports = None
            return
        if (due.has_disks or self._found_at) and self._clock() >= self._next_at:
            self._sampling = asyncio.create_task(self._sample_and_report(), name=COMPONENT)

    async def stop(self) -> None:
        """End; a sample that runs is not waited for."""
        if self._sampling is not None:
            self._sampling.cancel()
            with suppress(asyncio.CancelledError):
                await self._sampling

    async def sample(self) -> None:
        """Report what has begun and what has ended, and count the copies of the disks if that is due."""
        overview, risks = await self._threads.read(_read_storage)
        self._reports = self._reports or await self._resume_reports()
        self._report(self._reports, {one.key: one for one in find_conditions(overview, risks, self._found_at)})
        if self._clock() >= self._count_at:
            began = self._clock()
            for disk in overview.disks:
                await self._threads.run(write_counts, disk.id, await self._threads.read(count_copies, disk.id))
            ended = self._clock()
            self._count_at = ended + REST_RATIO * (ended - began)

    async def _sample_and_report(self) -> None:
        try:
            await self.sample()
        except DatabaseUnavailable:
            pass  # the agent reports it
        except Exception as error:  # noqa: BLE001 - the next sample is taken all the same
            failed = ComponentFailed(component=COMPONENT, error=describe_exception(error), again_in=SAMPLE_EVERY)
            self._events.emit(failed)
        self._next_at = self._clock() + SAMPLE_EVERY

    async def _resume_reports(self) -> OngoingConditions:
        """The reports of the manager before this one, or of this one before another was the first."""
        resumed = OngoingConditions(REPEAT_EVERY)
        now = self._clock()
        for kind in OF_STORAGE:
            for one in await self._threads.read(open_conditions, [kind], MAX_RESUMED):
                key = f"{kind} {one.subject}"
                resumed.resume(key, now - one.on_for, now - one.reported_ago)
                self._found_at[key] = now - CONFIRM_AFTER
        return resumed

    def _report(self, reports: OngoingConditions, found: dict[str, StorageCondition]) -> None:
        now = self._clock()
        self._found_at = {key: self._found_at.get(key, now) for key in found}
        confirmed = {key: one for key, one in found.items() if self._is_confirmed(one, now)}
        changes = reports.update(confirmed, now)
        for key in changes.present:
            one = confirmed[key]
            self._events.emit(
                StorageConditionFound(condition=one.kind.value, text=one.text, disk=one.disk, data=one.data)
            )
        for key, seconds in changes.ended.items():
            kind, _, disk = key.partition(" ")
            number = int(disk) if disk.isdecimal() else None
            text = END_TEXTS[AlertKind(kind)].format(disk=disk)
            self._events.emit(StorageConditionEnded(condition=kind, text=text, disk=number, seconds=seconds))

    def _is_confirmed(self, condition: StorageCondition, now: float) -> bool:
        waits = CONFIRM_AFTER if condition.kind in ABOUT_DISKS else 0.0
        return now - self._found_at[condition.key] >= waits


END_TEXTS: Final = {
    AlertKind.COPIES_AT_RISK: "all files have their copies, or have lacked one for a short time only",
    AlertKind.FILES_LOST: "no file is lost, or those that were are deleted",
    AlertKind.DISK_FULL: "disk {disk} has room again, or is to get no new copies",
    AlertKind.DISK_UNUSABLE: "disk {disk} can be used again, or was declared lost",
    AlertKind.REPAIR_BRAKE: "the repair brake is off: files are repaired",
}


def find_conditions(
    overview: StorageOverview, risks: list[RiskCount], before: Container[str] = ()
) -> list[StorageCondition]:
    """What needs a person's attention.

    Args:
        overview: of storage.
        risks: the files that have lacked copies for longer than the grace, and those that are lost.
        before: keys of the conditions that were found the last time: a disk that was nearly full is so until enough of
            it is free again.
    """
    found = []
    grace = format_duration(round(overview.grace))
    if overview.braked:
        names = ", ".join(overview.braked)
        text = (
            f"nothing is repaired: too many nodes with disks are silent at once ({names}); bring them back, or "
            "declare the disks lost that will not come back (peerd files disks lost)"
        )
        found.append(StorageCondition(kind=AlertKind.REPAIR_BRAKE, text=text, data={"nodes": overview.braked}))
    found += _conditions_of_files(risks, grace)
    for disk in overview.disks:
        if disk.state != DiskState.LOST.value and disk.kind == DiskKind.FOLDER.value:
            found += _conditions_of(disk, grace, before)
    return found


def _conditions_of_files(risks: list[RiskCount], grace: str) -> list[StorageCondition]:
    found = []
    counts = {health: sum(one.files for one in risks if one.health == health) for health in RISKS}
    more = " or more" if any(one.at_least for one in risks) else ""
    lost = counts.pop(LOST)
    if lost:
        text = f"{lost:,}{more} {_have(lost)} no copy any more: put what you still have again, or remove what is lost"
        text = f"{text} (peerd files at-risk --health {LOST})"
        found.append(StorageCondition(kind=AlertKind.FILES_LOST, text=text, data={"files": lost}))
    if files := sum(counts.values()):
        shown = ", ".join(f"{count:,} {health}" for health, count in counts.items() if count)
        text = f"{files:,}{more} {_have(files)} lacked copies for longer than {grace}: {shown} (peerd files at-risk)"
        data: dict[str, object] = {"files": files, "health": counts}
        found.append(StorageCondition(kind=AlertKind.COPIES_AT_RISK, text=text, data=data))
    return found


def _have(files: int) -> str:
    return "file has" if files == 1 else "files have"


def _conditions_of(disk: DiskFigures, grace: str, before: Container[str]) -> list[StorageCondition]:
    found = []
    place = disk.path if disk.node is None else f"{disk.path} of node {disk.node}"
    name = f"disk {disk.id} ({place})"
    data: dict[str, object] = {"node": disk.node, "path": disk.path}
    problem = disk.problem
    if disk.condition is DiskCondition.MISSING:
        missing = f"it is missing: it was not reported for longer than {grace}"
        problem = missing if problem is None else f"{missing}; {problem}"
    if problem is not None:
        text = f"{name}: {problem}"
        found.append(StorageCondition(kind=AlertKind.DISK_UNUSABLE, text=text, disk=disk.id, data=data))
    mark = LOW_WATER if f"{AlertKind.DISK_FULL} {disk.id}" in before else HIGH_WATER
    is_full = disk.used_share is not None and disk.used_share >= mark
    if is_full and disk.state == DiskState.ACTIVE.value:
        text = f"{name} is nearly full: {format_size(disk.room)} can still be written"
        data = {**data, "room": disk.room, "size": disk.size}
        found.append(StorageCondition(kind=AlertKind.DISK_FULL, text=text, disk=disk.id, data=data))
    return found


def _read_storage(connection: Connection) -> tuple[StorageOverview, list[RiskCount]]:
    overview = read_storage_overview(connection)
    late = count_risks(connection, [health for health in RISKS if health != LOST], longer_than=overview.grace)
    return overview, [*late, *count_risks(connection, [LOST])]
