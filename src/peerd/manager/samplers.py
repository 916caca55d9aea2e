"""Samples of queues and of storage for the whole cluster, by the manager of the first active node.

The statement with which a manager begins each round also says, at no further cost, whether its node is the first of the
active ones, whether any task is pending or working, and whether there are disks: an idle cluster is asked nothing more.
A sampler has a thread and a connection of its own, so that no chore waits for it.

A condition is reported at its begin, each hour while it lasts, and at its end. The first sample of a manager goes on
with what the one before it has reported: the table of alerts has it. So the end of a backlog is reported although the
manager that reported its begin has died.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import ClassVar, Final

from sqlalchemy.engine import Connection

from peerd.config.settings import StatisticsSettings
from peerd.domain.alert import ABOUT_DISKS, ENDED_BY_RECOVERY, OF_STORAGE, AlertKind, OngoingConditions
from peerd.domain.errors import DatabaseUnavailable
from peerd.manager.walks import SeriesWalk
from peerd.runtime.observability.events import (
    ComponentFailed,
    EventBus,
    QueueBacklogEnded,
    QueueBacklogFound,
    StorageConditionEnded,
    StorageConditionFound,
)
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.storage.conditions import StorageCondition, read_conditions
from peerd.store.alerts import OpenCondition, open_conditions
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.due import DueMaintenance
from peerd.store.files.disks import count_copies, write_counts
from peerd.store.queue_states import (
    LateQueue,
    QueueDepth,
    find_late_queues,
    purge_depths,
    roll_up_depths,
    sample_depths,
    write_depths,
)
from peerd.store.tasks.rows import BATCH
from peerd.store.time_series import HOUR, SAMPLE, TEN_MINUTES

REST_RATIO: Final = 100.0
"""A pause is so many times as long as the sample before it, at the least: sampling takes 1 % of the time."""
REPEAT_EVERY: Final = 3_600.0
"""Seconds between two reports of a condition that lasts."""
MAX_RESUMED: Final = 1_000
"""Conditions of a kind whose reports a manager goes on with."""
EXAMINE_EVERY: Final = 60.0
"""Seconds between two looks at the queues where samples are not kept."""
QUIET_EVERY: Final = 300.0
"""Seconds between two samples while no task is pending or working: only what is set aside could change."""
UNSERVED_AFTER: Final = 60.0
"""Seconds that a task waits in a queue that no process has ever served before this is reported."""
PURGE_EVERY: Final = 600.0
SAMPLE_EVERY: Final = 15.0
"""Seconds between two samples of storage."""
CONFIRM_AFTER: Final = 20.0
"""Seconds for which a disk must have had a problem before it is reported: a check that is slow once needs no person."""
CONFIRMED: Final = (*ABOUT_DISKS, AlertKind.REPAIR_BRAKE)
"""Kinds that are reported when they have lasted: a new disk is not there until its node has reported it."""


class Sampler(ABC):
    """What all samplers of a manager do.

    Args:
        database: of the manager.
        events: what is found.
        clock: monotonic seconds.
    """

    name: ClassVar[str]

    def __init__(self, database: Database, events: EventBus, clock: Callable[[], float]) -> None:
        self._threads = DatabaseThreads(database, threads=1)
        self._events = events
        self._clock = clock
        self._reports: OngoingConditions | None = None
        """What is reported; None: another manager reports, or it has not been read what that one did."""
        self._sampling: asyncio.Task[None] | None = None
        self._ended_at = -QUIET_EVERY
        """When the latest sample was complete."""
        self._pause = 0.0

    @abstractmethod
    async def sample(self) -> None:
        """Take a sample, and report what has begun and what has ended."""

    @abstractmethod
    def _is_due(self, due: DueMaintenance) -> bool:
        """Whether it is time for a sample."""

    @abstractmethod
    def _read_reported(self, connection: Connection) -> dict[str, OpenCondition]:
        """What was reported and has not ended, by its key."""

    def start_if_due(self, due: DueMaintenance, node_id: int) -> None:
        """Begin a sample, if it is time for one and this node is the first one."""
        if self._sampling is not None and not self._sampling.done():
            return
        if due.first_node != node_id:
            self._reports = None
        elif self._is_due(due):
            self._sampling = asyncio.create_task(self._sample_and_go_on(), name=self.name)

    async def stop(self) -> None:
        """End; a sample that runs is not waited for."""
        if self._sampling is not None:
            self._sampling.cancel()
            with suppress(asyncio.CancelledError):
                await self._sampling

    async def _sample_and_go_on(self) -> None:
        began = self._clock()
        try:
            await self.sample()
        except DatabaseUnavailable:
            pass  # the agent reports it
        except Exception as error:  # noqa: BLE001 - the next sample is taken all the same
            failed = ComponentFailed(component=self.name, error=describe_exception(error), again_in=SAMPLE_EVERY)
            self._events.emit(failed)
        self._ended_at = self._clock()
        self._pause = REST_RATIO * (self._ended_at - began)

    async def _ongoing(self) -> OngoingConditions:
        """What is reported, also by the manager before this one, or by this one before another was the first."""
        if self._reports is None:
            reported = await self._threads.read(self._read_reported)
            now, self._reports = self._clock(), OngoingConditions(REPEAT_EVERY)
            for key, one in reported.items():
                self._reports.resume(key, now - one.on_for, now - one.reported_ago)
        return self._reports


# ---------------------------------------------------------------- queues


class QueueSampler(Sampler):
    """Samples how deep the queues are, and whether their tasks wait for too long.

    Args:
        database: of the manager.
        events: what is found.
        settings: whether samples are kept, and for how long.
        max_wait: seconds for which the oldest pending task of a queue may have been due.
        clock: monotonic seconds.
    """

    name = "queue sample"

    def __init__(
        self,
        database: Database,
        events: EventBus,
        settings: StatisticsSettings,
        max_wait: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(database, events, clock)
        self._settings = settings
        self._max_wait = max_wait
        self._next_purge_at = 0.0
        self._was_busy = True
        kept = {TEN_MINUTES: settings.keep_minutes, HOUR: settings.keep_ten_minutes}
        self._walks = [SeriesWalk(step, roll_up_depths, age, clock) for step, age in kept.items()]
        self._ages = {SAMPLE: settings.keep_minutes, TEN_MINUTES: settings.keep_ten_minutes, HOUR: settings.keep_hours}

    def _is_due(self, due: DueMaintenance) -> bool:
        is_busy = due.has_pending or due.oldest_touch is not None
        # The first sample of a quiet time shows that it is quiet.
        period = (SAMPLE if self._settings.enabled else EXAMINE_EVERY) if is_busy or self._was_busy else QUIET_EVERY
        if self._clock() < self._ended_at + max(period, self._pause):
            return False
        self._was_busy = is_busy
        return True

    def _read_reported(self, connection: Connection) -> dict[str, OpenCondition]:
        return {one.subject: one for one in open_conditions(connection, ENDED_BY_RECOVERY, MAX_RESUMED)}

    async def sample(self) -> None:
        """Sample the queues, and report those that have become late, and those that are late no more."""
        sample, late = await self._threads.read(partial(_read_queues, longer_than=self._max_wait))
        self._report(await self._ongoing(), {queue.name: queue for queue in late})
        if self._settings.enabled:
            await self._roll_up(await self._threads.run(write_depths, sample))
        if self._clock() >= self._next_purge_at:
            self._next_purge_at = self._clock() + PURGE_EVERY
            for step, age in self._ages.items():
                while await self._threads.run(purge_depths, step, age) >= BATCH:
                    continue

    def _report(self, reports: OngoingConditions, late: dict[str, LateQueue]) -> None:
        changes = reports.update(late, self._clock())
        for name in changes.present:
            queue = late[name]
            self._events.emit(QueueBacklogFound(queue=name, oldest=queue.age, is_served=queue.is_served))
        for name, seconds in changes.ended.items():
            self._events.emit(QueueBacklogEnded(queue=name, seconds=seconds))

    async def _roll_up(self, moment: datetime) -> None:
        for walk in self._walks:
            due_at = walk.due_at(moment)
            while due_at is not None and due_at <= moment and walk.record(await self._threads.run(walk.run)):
                pass


def _read_queues(connection: Connection, *, longer_than: float) -> tuple[list[QueueDepth], list[LateQueue]]:
    sample = sample_depths(connection)
    return sample, find_late_queues(connection, sample, longer_than, UNSERVED_AFTER)


# ---------------------------------------------------------------- storage


class StorageSampler(Sampler):
    """Samples what of storage needs a person's attention, and how many copies each disk has."""

    name = "storage sample"

    def __init__(self, database: Database, events: EventBus, clock: Callable[[], float]) -> None:
        super().__init__(database, events, clock)
        self._found_at: dict[str, float] = {}
        """When each condition that holds was found first."""
        self._count_at = 0.0

    def _is_due(self, due: DueMaintenance) -> bool:
        return (due.has_disks or bool(self._found_at)) and self._clock() >= self._ended_at + SAMPLE_EVERY

    def _read_reported(self, connection: Connection) -> dict[str, OpenCondition]:
        found = {
            f"{kind} {one.subject}": one
            for kind in OF_STORAGE
            for one in open_conditions(connection, [kind], MAX_RESUMED)
        }
        self._found_at |= dict.fromkeys(found, self._clock() - CONFIRM_AFTER)
        return found

    async def sample(self) -> None:
        """Report what has begun and what has ended, and count the copies of the disks if that is due."""
        reports = await self._ongoing()
        overview, found = await self._threads.read(read_conditions, frozenset(self._found_at))
        self._report(reports, {one.key: one for one in found})
        if self._clock() >= self._count_at:
            began = self._clock()
            for disk in overview.disks:
                await self._threads.run(write_counts, disk.id, await self._threads.read(count_copies, disk.id))
            ended = self._clock()
            self._count_at = ended + REST_RATIO * (ended - began)

    def _report(self, reports: OngoingConditions, found: dict[str, StorageCondition]) -> None:
        now = self._clock()
        self._found_at = {key: self._found_at.get(key, now) for key in found}
        waits = {key: CONFIRM_AFTER if one.kind in CONFIRMED else 0.0 for key, one in found.items()}
        confirmed = {key: one for key, one in found.items() if now - self._found_at[key] >= waits[key]}
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


END_TEXTS: Final = {
    AlertKind.COPIES_AT_RISK: "all files have their copies, or have lacked one for a short time only",
    AlertKind.FILES_UNREADABLE: "all files can be read again",
    AlertKind.FILES_LOST: "no file is lost, or those that were are deleted",
    AlertKind.DISK_FULL: "disk {disk} has room again, or is to get no new copies",
    AlertKind.DISK_UNUSABLE: "disk {disk} can be used again, or was declared lost",
    AlertKind.REPAIR_BRAKE: "the repair brake is off: files are repaired",
}
