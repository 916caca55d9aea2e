"""Samples the queues for the whole cluster: how deep they are, and whether their tasks wait for too long.

It is in the manager, because the statement with which a manager begins each round says for nothing whether its node is
the first of the active ones, which samples for all, and whether any task is pending or working: an idle cluster is
asked nothing more. It has a thread and a connection of its own, so that no chore waits for it.

The first sample of a manager goes on with what the one before it has reported: the table of alerts has it. So the end
of a backlog is reported although the manager that reported its begin has died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy.engine import Connection

from peerd.config.settings import StatisticsSettings
from peerd.domain.alert import ENDED_BY_RECOVERY, OngoingConditions
from peerd.domain.errors import DatabaseUnavailable
from peerd.manager.table_walks import SeriesWalk
from peerd.runtime.observability.events import ComponentFailed, EventBus, QueueBacklogEnded, QueueBacklogFound
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.alerts import open_conditions
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.due import DueMaintenance
from peerd.store.queues import LateQueue, find_late_queues
from peerd.store.statistics.depths import QueueDepth, roll_up_depths, sample_depths, write_depths
from peerd.store.statistics.rollup import purge_depths
from peerd.store.statistics.steps import HOUR, SAMPLE, TEN_MINUTES
from peerd.store.tasks.rows import BATCH

EXAMINE_EVERY: Final = 60.0
"""Seconds between two looks at the queues where samples are not kept."""
QUIET_EVERY: Final = 300.0
"""Seconds between two samples while no task is pending or working: only what is set aside could change."""
REST_RATIO: Final = 100.0
"""A pause is so many times as long as the sample before it, at the least: sampling takes 1 % of the time."""
UNSERVED_AFTER: Final = 60.0
"""Seconds that a task waits in a queue that no process has ever served before this is reported."""
REPEAT_EVERY: Final = 3_600.0
"""Seconds between two reports of the same queue, while its tasks wait."""
MAX_RESUMED: Final = 1_000
"""Queues whose reports a manager goes on with."""
PURGE_EVERY: Final = 600.0
"""Seconds."""


class QueueSampler:
    """The sampler of one manager.

    Args:
        database: of the manager.
        events: what is found.
        settings: whether samples are kept, and for how long.
        max_wait: seconds for which the oldest pending task of a queue may have been due.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        events: EventBus,
        settings: StatisticsSettings,
        max_wait: float,
        clock: Callable[[], float],
    ) -> None:
        self._threads = DatabaseThreads(database, threads=1)
        self._events = events
        self._settings = settings
        self._max_wait = max_wait
        self._clock = clock
        self._late: OngoingConditions | None = None
        """What is reported; None: another manager reports, or it has not been read what that one did."""
        self._sampling: asyncio.Task[None] | None = None
        self._ended_at = -QUIET_EVERY
        """When the latest sample was complete."""
        self._pause = 0.0
        self._next_purge_at = 0.0
        self._was_busy = True
        kept = {TEN_MINUTES: settings.keep_minutes, HOUR: settings.keep_ten_minutes}
        self._walks = [SeriesWalk(step, roll_up_depths, age, clock) for step, age in kept.items()]
        self._ages = {SAMPLE: settings.keep_minutes, TEN_MINUTES: settings.keep_ten_minutes, HOUR: settings.keep_hours}

    def start_if_due(self, due: DueMaintenance, node_id: int) -> None:
        """Begin a sample, if it is time for one and this node is the first one."""
        if self._sampling is not None and not self._sampling.done():
            return
        if due.first_node != node_id:
            self._late = None
            return
        is_busy = due.has_pending or due.oldest_touch is not None
        # The first sample of a quiet time shows that it is quiet.
        period = (SAMPLE if self._settings.enabled else EXAMINE_EVERY) if is_busy or self._was_busy else QUIET_EVERY
        if self._clock() < self._ended_at + max(period, self._pause):
            return
        self._was_busy = is_busy
        self._sampling = asyncio.create_task(self._sample_and_report(), name="queue sample")

    async def stop(self) -> None:
        """End; a sample that runs is not waited for."""
        if self._sampling is not None:
            self._sampling.cancel()
            with suppress(asyncio.CancelledError):
                await self._sampling

    async def sample(self) -> None:
        """Sample the queues, and report those that have become late, and those that are late no more."""
        sample, late = await self._threads.read(partial(_read_queues, longer_than=self._max_wait))
        self._late = self._late or await self._resume_reports()
        self._report(self._late, {queue.name: queue for queue in late})
        if self._settings.enabled:
            await self._roll_up(await self._threads.run(write_depths, sample))
        if self._clock() >= self._next_purge_at:
            self._next_purge_at = self._clock() + PURGE_EVERY
            for step, age in self._ages.items():
                while await self._threads.run(purge_depths, step, age) >= BATCH:
                    continue

    async def _sample_and_report(self) -> None:
        began = self._clock()
        try:
            await self.sample()
        except DatabaseUnavailable:
            pass  # the agent reports it
        except Exception as error:  # noqa: BLE001 - the next sample is taken all the same
            self._events.emit(
                ComponentFailed(component="queue sample", error=describe_exception(error), again_in=SAMPLE)
            )
        self._ended_at = self._clock()
        self._pause = REST_RATIO * (self._ended_at - began)

    async def _resume_reports(self) -> OngoingConditions:
        """The reports of the manager before this one, or of this one before another was the first."""
        resumed = OngoingConditions(REPEAT_EVERY)
        found = await self._threads.read(open_conditions, ENDED_BY_RECOVERY, MAX_RESUMED)
        now = self._clock()
        for one in found:
            resumed.resume(one.subject, now - one.on_for, now - one.reported_ago)
        return resumed

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
