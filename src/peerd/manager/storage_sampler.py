"""Samples storage for the whole cluster: what needs a person's attention, and how many copies each disk has.

The manager of the first active node does it for all, as `QueueSampler` does with queues; where there are no disks,
nothing is read. A condition is reported at its begin, each hour while it lasts, and at its end. The first sample of a
manager goes on with what the one before it has reported, which is in the table of alerts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from peerd.domain.alert import ABOUT_DISKS, OF_STORAGE, AlertKind, OngoingConditions
from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import (
    ComponentFailed,
    EventBus,
    StorageConditionEnded,
    StorageConditionFound,
)
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.storage.conditions import StorageCondition, read_conditions
from peerd.store.alerts import open_conditions
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.due import DueMaintenance
from peerd.store.files.disks import count_copies, write_counts

SAMPLE_EVERY: Final = 15.0
"""Seconds between two samples."""
REST_RATIO: Final = 100.0
"""A pause after counting is so many times as long as the counting: it takes 1 % of the time."""
CONFIRM_AFTER: Final = 20.0
"""Seconds for which a disk must have had a problem before it is reported: a check that is slow once needs no person."""
REPEAT_EVERY: Final = 3_600.0
"""Seconds between two reports of a condition that lasts."""
MAX_RESUMED: Final = 1_000
CONFIRMED: Final = (*ABOUT_DISKS, AlertKind.REPAIR_BRAKE)
"""Kinds that are reported when they have lasted: a new disk is not there until its node has reported it."""
COMPONENT: Final = "storage sample"


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
        self._reports = self._reports or await self._resume_reports()
        overview, found = await self._threads.read(read_conditions, frozenset(self._found_at))
        self._report(self._reports, {one.key: one for one in found})
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
            text = f"{one.text}; {one.remedy}"
            self._events.emit(StorageConditionFound(condition=one.kind.value, text=text, disk=one.disk, data=one.data))
        for key, seconds in changes.ended.items():
            kind, _, disk = key.partition(" ")
            number = int(disk) if disk.isdecimal() else None
            text = END_TEXTS[AlertKind(kind)].format(disk=disk)
            self._events.emit(StorageConditionEnded(condition=kind, text=text, disk=number, seconds=seconds))

    def _is_confirmed(self, condition: StorageCondition, now: float) -> bool:
        waits = CONFIRM_AFTER if condition.kind in CONFIRMED else 0.0
        return now - self._found_at[condition.key] >= waits


END_TEXTS: Final = {
    AlertKind.COPIES_AT_RISK: "all files have their copies, or have lacked one for a short time only",
    AlertKind.FILES_UNREADABLE: "all files can be read again",
    AlertKind.FILES_LOST: "no file is lost, or those that were are deleted",
    AlertKind.DISK_FULL: "disk {disk} has room again, or is to get no new copies",
    AlertKind.DISK_UNUSABLE: "disk {disk} can be used again, or was declared lost",
    AlertKind.REPAIR_BRAKE: "the repair brake is off: files are repaired",
}
