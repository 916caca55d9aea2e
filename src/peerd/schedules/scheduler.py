"""In the agent: looks at the schedules' clocks about every second, and when a tick is due; fires it; lets runs begin.

What time it is, the database says at each look; between two looks only spans are measured here, so it does not matter
what the machine's own clock shows. The looks are the truth: whatever happens meanwhile (a run by hand, a switch, a node
that is lost) is seen at the next one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from peerd.domain.backoff import Backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.schedule import CLUSTER, FireTick, MissTick, RunStatus, Schedule, WaitForTick, decide_tick
from peerd.runtime.observability.events import EventBus, ScheduleFailed, ScheduleTickFired
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.custom_triggers import CustomTriggers
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.run_dispatcher import RunDispatcher
from peerd.store.connection.database import DatabaseThreads
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun
from peerd.store.schedules import (
    CLUSTER_ROW,
    ScheduleRow,
    ScheduleSnapshot,
    clock_node_id,
    declare_schedule,
    fire_tick,
    read_snapshot,
    record_schedule_error,
    skip_tick,
    take_over_definition,
    withdraw_schedule,
)

POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at the most, while the node has schedules."""
CLOCK_MARGIN: Final = 0.001
"""Seconds after a tick at which it is looked at: SQLite tells milliseconds."""


class Scheduler:
    """The clock of one node.

    Args:
        registry: its schedules.
        dispatch: the way of runs to their processes.
        custom: the schedules whose ticks are those of a class of the user.
        threads: of the database.
        identity: the node, and its life.
        silence: seconds without a beat after which a node counts as gone.
        events: what happens.
    """

    def __init__(
        self,
        registry: ScheduleRegistry,
        dispatch: RunDispatcher,
        custom: CustomTriggers,
        threads: DatabaseThreads,
        identity: NodeIdentity,
        *,
        silence: float,
        events: EventBus,
    ) -> None:
        self._registry = registry
        self._dispatch = dispatch
        self._custom = custom
        self._threads = threads
        self._identity = identity
        self._silence = silence
        self._events = events
        self._declared: dict[str, str] = {}
        self._process_deaths: list[tuple[int, str]] = []
        self._wake_event = asyncio.Event()
        registry.on_change = dispatch.wake = custom.wake = self.wake

    def wake(self) -> None:
        """Look at once."""
        self._wake_event.set()

    def on_process_death(self, pid: int, cause: str) -> None:
        """Hear that a process of the node has died."""
        self._process_deaths.append((pid, cause))
        self.wake()

    async def run(self) -> None:
        """Look, and do what is to be done, until cancelled."""
        pauses = Backoff(first=POLL_INTERVAL)
        try:
            while True:
                self._wake_event.clear()
                try:
                    await self._pause(await self.step())
                    pauses.reset()
                except DatabaseUnavailable:  # the heartbeat says so
                    await asyncio.sleep(pauses.next())
        finally:
            await self._custom.stop_all()

    async def step(self) -> float | None:
        """One look; the seconds until the next one, None when there is nothing to look at."""
        await self.record_process_deaths()
        await self._declare()
        if not len(self._registry):
            return None
        snapshot = await self._read_snapshot()
        fired = [run for schedule in self._registry if (run := await self._tick_safely(schedule, snapshot)) is not None]
        self._custom.update_disabled(snapshot)
        if fired:
            snapshot = await self._read_snapshot()
        await self._dispatch.process_snapshot(snapshot)
        return self._until_next(snapshot)

    async def record_process_deaths(self) -> None:
        """End the runs of processes that have died."""
        while self._process_deaths:
            await self._dispatch.end_runs_of_dead_process(*self._process_deaths[0])
            self._process_deaths.pop(0)

    async def _declare(self) -> None:
        """Say in the table which schedules this node has."""
        for name in [name for name in self._declared if self._registry.get(name) is None]:
            await self._threads.run(withdraw_schedule, name, self._identity)
            await self._custom.stop(name)
            del self._declared[name]
        for schedule in self._registry:
            if self._declared.get(schedule.name) != schedule.fingerprint:
                await self._threads.run(declare_schedule, schedule, self._identity, self._silence)
                self._declared[schedule.name] = schedule.fingerprint
                if schedule.is_custom:
                    await self._start_custom(schedule)

    async def _start_custom(self, schedule: Schedule) -> None:
        try:
            await self._custom.start(schedule)
        except Exception as error:  # noqa: BLE001 - the user's code; the other schedules go on
            await self._fail(schedule, error)

    async def _read_snapshot(self) -> ScheduleSnapshot:
        return await self._threads.read(read_snapshot, [schedule.name for schedule in self._registry], self._identity)

    async def _tick_safely(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> ScheduleRun | None:
        """See to a schedule's tick; what goes wrong with one does not keep the others from theirs."""
        try:
            return await self._tick(schedule, snapshot)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            await self._fail(schedule, error)
            return None

    async def _tick(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> ScheduleRun | None:
        seen = self._row(schedule, snapshot)
        if seen is None or not await self._definition_matches(schedule, seen):
            return None
        assert seen.anchor_at is not None
        if self._is_disabled(schedule, snapshot):
            if seen.next_at is not None and seen.next_at <= snapshot.now:
                await self._threads.run(skip_tick, seen, schedule, snapshot.now)
            return None
        if snapshot.draining and schedule.type == CLUSTER:
            return None
        decided = decide_tick(schedule, seen.next_at, seen.anchor_at, snapshot.now, self._seed(seen))
        if isinstance(decided, WaitForTick):
            return None
        run = await self._threads.run(fire_tick, seen, schedule, decided)
        if run is not None:
            self._emit_fired(run, decided)
        return run

    async def _definition_matches(self, schedule: Schedule, seen: ScheduleRow) -> bool:
        """Whether the clock's row means what we mean. If nobody means what it says, we write our own."""
        if seen.fingerprint == schedule.fingerprint:
            return True
        if schedule.type == CLUSTER and await self._threads.run(
            take_over_definition, schedule, self._identity, self._silence
        ):
            self.wake()
        return False

    def _until_next(self, snapshot: ScheduleSnapshot) -> float:
        """Seconds until the next tick is due, at most until the next look in any case."""
        pause = POLL_INTERVAL
        for schedule in self._registry:
            seen = self._row(schedule, snapshot)
            if seen is None or seen.anchor_at is None or self._is_disabled(schedule, snapshot):
                continue
            if seen.fingerprint == schedule.fingerprint:
                decided = decide_tick(schedule, seen.next_at, seen.anchor_at, snapshot.now, self._seed(seen))
                if isinstance(decided, WaitForTick) and decided.until is not None:
                    pause = min(pause, _seconds(decided.until - snapshot.now) + CLOCK_MARGIN)
        return max(pause, CLOCK_MARGIN)

    def _row(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> ScheduleRow | None:
        return snapshot.rows.get((schedule.name, clock_node_id(schedule, self._identity)))

    def _is_disabled(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> bool:
        cluster = snapshot.rows.get((schedule.name, CLUSTER_ROW))
        return not schedule.enabled or cluster is None or cluster.disabled

    def _seed(self, seen: ScheduleRow) -> str:
        return f"{seen.name} {seen.node_id}"

    async def _pause(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_event.wait()

    async def _fail(self, schedule: Schedule, error: Exception) -> None:
        self._events.emit(ScheduleFailed(schedule=schedule.name, error=describe_exception(error)))
        await self._threads.run(record_schedule_error, schedule.name, self._identity, describe_exception(error))

    def _emit_fired(self, run: ScheduleRun, decided: FireTick | MissTick) -> None:
        late = decided.late if isinstance(decided, MissTick) else None
        self._events.emit(
            ScheduleTickFired(
                schedule=run.schedule,
                run_id=run.id,
                tick=_text(run.tick_at),
                status=run.status,
                reason=run.error if run.status in (RunStatus.SKIPPED, RunStatus.MISSED) else None,
                late=late,
            )
        )


def _seconds(span: timedelta) -> float:
    return max(span.total_seconds(), 0.0)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
