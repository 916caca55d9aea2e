"""The manager's process: its beat, the rescue of frozen tasks, the activity of nodes, and the chores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.domain.backoff import Backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.lifecycle import TaskEvent
from peerd.manager.chores import CHORES, Chore
from peerd.manager.rescue_guard import RescueGuard
from peerd.runtime.observability.events import (
    ChoreRan,
    ComponentFailed,
    EventBus,
    NodesMarkedInactive,
    PinnedTasksBlocked,
    RescueSuspended,
    ScheduleRunsLost,
    TasksRescued,
)
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.maintenance.chore_batches import count_pinned
from peerd.store.maintenance.due import DueMaintenance, read_due_maintenance
from peerd.store.maintenance.rescue import rescue_untouched
from peerd.store.nodes.nodes import deactivate_silent
from peerd.store.nodes.process_registration import register_this_process_with_retry
from peerd.store.nodes.processes import heartbeat_process
from peerd.store.schedule_runs import mark_lost_runs

CHORE_STOP_TIMEOUT: Final = 3.0
"""Seconds that a stop waits for the chore that runs."""
CHORE_TIME_SLICE: Final = 0.5
"""Seconds after which a chore that has more to do lets the others have their turn. It goes on in the next round."""
BATCH_PAUSE_RATIO: Final = 0.5
"""How long a chore rests after a full batch, as a share of what the batch took: a busy database makes it slower."""
LOST_RUNS_PERIODS: Final = 10
"""Between two looks for scheduled runs of nodes that are gone."""
PINNED_REPORT_INTERVAL: Final = 60.0
"""Seconds."""
LONGEST_PAUSE: Final = 5.0
"""Seconds between two rounds at the most, unless ``every`` is longer."""
ALREADY_DUE: Final = datetime.min.replace(tzinfo=UTC)
"""A moment that has come."""
CLOCK_MARGIN: Final = 0.001
"""Seconds after a moment at which the database knows that it has come."""


class ManagerService:
    """The manager of one node.

    Args:
        settings: the periods.
        database: of this process.
        events: what happens.
    """

    def __init__(self, settings: ManagerSettings, database: Database, events: EventBus) -> None:
        self._settings = settings
        self._database = database
        self._threads = DatabaseThreads(database, threads=1)
        self._events = events
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._next_runs: dict[str, float] = {}
        """When a step may come again, by its name."""
        self._next_round_at = 0.0
        self._next_pinned_report = 0.0
        self._hold_reported = False
        self._has_more: set[str] = set()
        self._heartbeat_at = 0.0
        self._agenda: DueMaintenance | None = None
        self._pauses = Backoff(first=settings.every, longest=max(settings.every, LONGEST_PAUSE))
        self._rescue_guard = RescueGuard(
            needed=settings.max_update, gap=max(3 * settings.every, settings.max_update / 3)
        )
        self._activity_guard = RescueGuard(
            settings.inactive_after, gap=max(3 * settings.every, settings.inactive_after)
        )

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process."""
        self._now = asyncio.get_running_loop().time
        outages = OutageTracker(self._events, self._now)
        _, self._process_id = await register_this_process_with_retry(self._database, link, outages)
        return {"process_id": self._process_id}

    async def run(self) -> None:
        """A round of chores each period, until `quiet`."""
        try:
            while not self._stopping.is_set():
                await self._run_round()
                await self._pause()
        finally:
            self._ended.set()

    async def receive(self, message: Mapping[str, object]) -> None:
        """Nothing that the master says concerns it."""

    async def quiet(self) -> None:
        """Begin no further round."""
        self._stopping.set()

    async def stop(self, grace: float) -> None:
        """Let the chore that runs end: it is a short transaction."""
        self._stopping.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CHORE_STOP_TIMEOUT):
                await self._ended.wait()

    async def _run_round(self) -> None:
        self._agenda = None
        if not await self._run_step("beat", self._heartbeat):
            self._back_off()
            return
        self._pauses.reset()
        self._next_round_at = self._now() + self._longest_pause()
        if self._may_rescue() and self._is_step_due("rescue", self._touch_is_late()):
            await self._run_step("rescue", self._rescue)
        if self._is_step_due("lost runs", self._due_if(lambda agenda: agenda.runs), LOST_RUNS_PERIODS):
            await self._run_step("lost runs", self._lose_runs)
        if self._is_step_due("nodes", self._heartbeat_is_late()):
            await self._run_step("nodes", self._deactivate_nodes)
        for chore in CHORES:
            if self._is_due(chore) and not self._stopping.is_set():
                await self._run_step(chore.name, partial(self._run_chore, chore))
        await self._run_step("report pinned", self._report_pinned)

    # ---------------------------------------------------------------- what there is to do, and when

    def _is_step_due(self, name: str, due: datetime | None, periods: int = 1) -> bool:
        """Whether it is time for a step; if not, the next round comes in time for it.

        Args:
            name: the step's.
            due: when there is something to do, by the database's clock; None: nothing.
            periods: between two of these steps at the least.
        """
        if due is None:
            return False
        now = self._now()
        soonest = self._next_runs.get(name, now)
        if self._agenda is not None:
            soonest = max(soonest, now + (due - self._agenda.now).total_seconds())
        if soonest > now:
            self._next_round_at = min(self._next_round_at, soonest)
            return False
        self._next_runs[name] = now + periods * self._settings.every
        self._next_round_at = min(
            self._next_round_at, self._next_runs[name]
        )  # what comes after it is on the next agenda
        return True

    def _is_due(self, chore: Chore) -> bool:
        return self._is_step_due(chore.name, self._chore_due_at(chore), chore.periods) or chore.name in self._has_more

    def _chore_due_at(self, chore: Chore) -> datetime | None:
        if self._agenda is None or chore.due is None:
            return ALREADY_DUE
        return chore.due(self._agenda, self._settings)

    def _due_if(self, what: Callable[[DueMaintenance], object]) -> datetime | None:
        return ALREADY_DUE if self._agenda is None or what(self._agenda) else None

    def _touch_is_late(self) -> datetime | None:
        if self._agenda is None:
            return ALREADY_DUE
        oldest = self._agenda.oldest_touch
        return None if oldest is None else oldest + timedelta(seconds=self._settings.max_update)

    def _heartbeat_is_late(self) -> datetime | None:
        if self._agenda is None:
            return ALREADY_DUE
        oldest = self._agenda.oldest_beat
        late = None if oldest is None else oldest + timedelta(seconds=self._settings.inactive_after)
        return None if self._is_only_node and late is not None and late > self._agenda.now else late

    @property
    def _is_only_node(self) -> bool:
        """Whether there is no other node whose silence would have to be noticed the moment it is too long."""
        return self._agenda is not None and self._agenda.nodes <= 1

    def _longest_pause(self) -> float:
        """Seconds to the next round when nothing is to be done before. Its own beats must leave no gap."""
        gap = self._rescue_guard.gap if self._is_only_node else min(self._rescue_guard.gap, self._activity_guard.gap)
        return max(self._settings.every, min(LONGEST_PAUSE, gap / 2))

    def _back_off(self) -> None:
        """Each step of the round would ask anew for a database that is away."""
        self._next_round_at = self._now() + self._pauses.next()

    async def _run_step(self, name: str, step: Callable[[], Awaitable[None]]) -> bool:
        """One step; what goes wrong in it does not keep the others from theirs. Whether the database was there."""
        try:
            await step()
        except DatabaseUnavailable:
            return False  # the agent and the workers say so; the pulse will notice the gap
        except Exception as error:  # noqa: BLE001 - a chore that fails is tried again in the next round
            self._events.emit(
                ComponentFailed(
                    component=f"chore {name}", error=describe_exception(error), again_in=self._settings.every
                )
            )
        return True

    async def _heartbeat(self) -> None:
        """Write that it goes on, which is what gives it the right to judge others; and look what there is to do."""
        self._agenda = await self._threads.run_idempotent(_heartbeat_and_read_due, self._process_id)
        self._rescue_guard.record_heartbeat(self._now(), self._agenda.now)
        self._activity_guard.record_heartbeat(self._now(), self._agenda.now)
        self._heartbeat_at = self._now()

    def _may_rescue(self) -> bool:
        """Whether its pulse has been steady for long enough; if not, the next round comes when it may be."""
        missing = self._rescue_guard.needed - self._rescue_guard.steady_seconds(self._now())
        if self._rescue_guard.may_rescue(self._now()):
            self._hold_reported = False
            return True
        self._report_hold(missing)
        self._next_round_at = min(self._next_round_at, self._now() + missing)
        return False

    async def _rescue(self) -> None:
        taken = await self._threads.run(
            rescue_untouched, self._settings.max_update, self._settings.batch, as_of=self._rescue_guard.last_heartbeat
        )
        if taken:
            dead = sum(one.event is TaskEvent.DIE for one in taken)
            ids = tuple(one.task_id for one in taken)
            cause = f"untouched for {self._settings.max_update:g} s"
            self._events.emit(TasksRescued(cause=cause, task_ids=ids, dead=dead))

    async def _lose_runs(self) -> None:
        """End the scheduled runs of nodes that are gone, by the same rule as tasks are rescued."""
        if self._rescue_guard.may_rescue(self._now()):
            lost = await self._threads.run(
                mark_lost_runs, self._settings.max_update, as_of=self._rescue_guard.last_heartbeat
            )
            if lost:
                self._events.emit(ScheduleRunsLost(run_ids=tuple(lost)))

    def _report_hold(self, seconds: float) -> None:
        if not self._hold_reported:
            self._hold_reported = True
            self._events.emit(RescueSuspended(seconds=seconds, reason=self._rescue_guard.reason))

    async def _deactivate_nodes(self) -> None:
        """Say which nodes are silent; after an outage only when all have had the time to be heard again."""
        if not self._activity_guard.may_rescue(self._now()):
            return
        silent = await self._threads.run(deactivate_silent, self._settings.inactive_after)
        if silent:
            self._events.emit(NodesMarkedInactive(nodes=tuple(silent)))

    async def _run_chore(self, chore: Chore) -> None:
        """One turn: batch after batch, with a rest after each, while there is more and the turn lasts."""
        self._has_more.discard(chore.name)
        ends, total = self._now() + CHORE_TIME_SLICE, 0
        while True:
            began = self._now()
            count = await self._threads.run(chore.run, self._settings)
            total += count
            if count < self._settings.batch or self._stopping.is_set():
                break
            if self._now() >= ends:
                self._has_more.add(chore.name)
                break
            await asyncio.sleep(BATCH_PAUSE_RATIO * (self._now() - began))
            await self._heartbeat_if_due()
        if total:
            self._events.emit(ChoreRan(chore=chore.name, count=total))

    async def _heartbeat_if_due(self) -> None:
        """Beat, if it is time: chores that have much to do must not look like a node that was away."""
        if self._now() - self._heartbeat_at >= self._settings.every:
            await self._run_step("beat", self._heartbeat)

    async def _report_pinned(self) -> None:
        if self._now() < self._next_pinned_report:
            return
        self._next_pinned_report = self._now() + PINNED_REPORT_INTERVAL
        count = await self._threads.read(count_pinned, self._settings.pinned_after)
        if count:
            self._events.emit(PinnedTasksBlocked(count=count, policy=self._settings.pinned_policy))

    async def _pause(self) -> None:
        """Until there is something to do, spread so that nodes do not look together; never shorter than ``every``.

        There is no pause while a chore has more to do and the database is there: it has rested between its batches.
        """
        if self._has_more and self._agenda is not None:
            return
        rest = max(self._settings.every * random.uniform(0.8, 1.2), self._next_round_at + CLOCK_MARGIN - self._now())
        with suppress(TimeoutError):
            async with asyncio.timeout(min(rest, self._longest_pause() * random.uniform(0.8, 1.2))):
                await self._stopping.wait()


def _heartbeat_and_read_due(connection: Connection, process_id: int) -> DueMaintenance:
    heartbeat_process(connection, process_id)
    return read_due_maintenance(connection)
