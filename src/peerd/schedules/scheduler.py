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

from peerd.domain.errors import DatabaseAway
from peerd.domain.schedule import CLUSTER, Fire, Miss, RunStatus, Schedule, Wait, decide
from peerd.runtime.observability.events import Events, ScheduleFailed, ScheduleTickFired
from peerd.runtime.process.uncaught_exceptions import words
from peerd.schedules.custom_triggers import CustomTypes
from peerd.schedules.registry import Book
from peerd.schedules.run_dispatcher import Dispatch
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import Backoff
from peerd.store.schedule_runs import Here, Run
from peerd.store.schedules import (
    THE_CLUSTER,
    Clock,
    Sight,
    clock_of,
    declare,
    look,
    pass_over,
    report_error,
    stand_in,
    tick,
    withdraw,
)

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the most, while the node has schedules."""
A_MOMENT: Final = 0.001
"""Seconds after a tick at which it is looked at: SQLite tells milliseconds."""


class ScheduleClock:
    """The clock of one node.

    Args:
        book: its schedules.
        dispatch: the way of runs to their processes.
        custom: the schedules whose ticks are those of a class of the user.
        threads: of the database.
        here: the node, and its life.
        silence: seconds without a beat after which a node counts as gone.
        events: what happens.
    """

    def __init__(
        self,
        book: Book,
        dispatch: Dispatch,
        custom: CustomTypes,
        threads: DatabaseThreads,
        here: Here,
        *,
        silence: float,
        events: Events,
    ) -> None:
        self._book = book
        self._dispatch = dispatch
        self._custom = custom
        self._threads = threads
        self._here = here
        self._silence = silence
        self._events = events
        self._declared: dict[str, str] = {}
        self._deaths: list[tuple[int, str]] = []
        self._woken = asyncio.Event()
        book.changed = dispatch.wake = custom.wake = self.wake

    def wake(self) -> None:
        """Look at once."""
        self._woken.set()

    def hear_death(self, pid: int, cause: str) -> None:
        """Hear that a process of the node has died."""
        self._deaths.append((pid, cause))
        self.wake()

    async def run(self) -> None:
        """Look, and do what is to be done, until cancelled."""
        pauses = Backoff(first=LOOK_EVERY)
        try:
            while True:
                self._woken.clear()
                try:
                    await self._pause(await self.step())
                    pauses.reset()
                except DatabaseAway:  # the heartbeat says so
                    await asyncio.sleep(pauses.next())
        finally:
            await self._custom.stop_all()

    async def step(self) -> float | None:
        """One look; the seconds until the next one, None when there is nothing to look at."""
        await self.take_deaths()
        await self._declare()
        if not len(self._book):
            return None
        sight = await self._look()
        fired = [run for schedule in self._book if (run := await self._tick_guarded(schedule, sight)) is not None]
        self._custom.see(sight)
        if fired:
            sight = await self._look()
        await self._dispatch.serve(sight)
        return self._until_next(sight)

    async def take_deaths(self) -> None:
        """End the runs of processes that have died."""
        while self._deaths:
            await self._dispatch.take_death(*self._deaths[0])
            self._deaths.pop(0)

    async def _declare(self) -> None:
        """Say in the table which schedules this node has."""
        for name in [name for name in self._declared if self._book.get(name) is None]:
            await self._threads.run(withdraw, name, self._here)
            await self._custom.stop(name)
            del self._declared[name]
        for schedule in self._book:
            if self._declared.get(schedule.name) != schedule.fingerprint:
                await self._threads.run(declare, schedule, self._here, self._silence)
                self._declared[schedule.name] = schedule.fingerprint
                if schedule.is_custom:
                    await self._start_custom(schedule)

    async def _start_custom(self, schedule: Schedule) -> None:
        try:
            await self._custom.start(schedule)
        except Exception as error:  # noqa: BLE001 - the user's code; the other schedules go on
            await self._fail(schedule, error)

    async def _look(self) -> Sight:
        return await self._threads.read(look, [schedule.name for schedule in self._book], self._here)

    async def _tick_guarded(self, schedule: Schedule, sight: Sight) -> Run | None:
        """See to a schedule's tick; what goes wrong with one does not keep the others from theirs."""
        try:
            return await self._tick(schedule, sight)
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            await self._fail(schedule, error)
            return None

    async def _tick(self, schedule: Schedule, sight: Sight) -> Run | None:
        seen = self._clock(schedule, sight)
        if seen is None or not await self._stands(schedule, seen):
            return None
        assert seen.anchor_at is not None
        if self._is_off(schedule, sight):
            if seen.next_at is not None and seen.next_at <= sight.now:
                await self._threads.run(pass_over, seen, schedule, sight.now)
            return None
        if sight.draining and schedule.type == CLUSTER:
            return None
        decided = decide(schedule, seen.next_at, seen.anchor_at, sight.now, self._seed(seen))
        if isinstance(decided, Wait):
            return None
        run = await self._threads.run(tick, seen, schedule, decided)
        if run is not None:
            self._say_fired(run, decided)
        return run

    async def _stands(self, schedule: Schedule, seen: Clock) -> bool:
        """Whether the clock's row means what we mean. If nobody means what it says, we write our own."""
        if seen.fingerprint == schedule.fingerprint:
            return True
        if schedule.type == CLUSTER and await self._threads.run(stand_in, schedule, self._here, self._silence):
            self.wake()
        return False

    def _until_next(self, sight: Sight) -> float:
        """Seconds until the next tick is due, at most until the next look in any case."""
        pause = LOOK_EVERY
        for schedule in self._book:
            seen = self._clock(schedule, sight)
            if seen is None or seen.anchor_at is None or self._is_off(schedule, sight):
                continue
            if seen.fingerprint == schedule.fingerprint:
                decided = decide(schedule, seen.next_at, seen.anchor_at, sight.now, self._seed(seen))
                if isinstance(decided, Wait) and decided.until is not None:
                    pause = min(pause, _seconds(decided.until - sight.now) + A_MOMENT)
        return max(pause, A_MOMENT)

    def _clock(self, schedule: Schedule, sight: Sight) -> Clock | None:
        return sight.clocks.get((schedule.name, clock_of(schedule, self._here)))

    def _is_off(self, schedule: Schedule, sight: Sight) -> bool:
        cluster = sight.clocks.get((schedule.name, THE_CLUSTER))
        return not schedule.enabled or cluster is None or cluster.disabled

    def _seed(self, seen: Clock) -> str:
        return f"{seen.name} {seen.node_id}"

    async def _pause(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _fail(self, schedule: Schedule, error: Exception) -> None:
        self._events.emit(ScheduleFailed(schedule=schedule.name, error=words(error)))
        await self._threads.run(report_error, schedule.name, self._here, words(error))

    def _say_fired(self, run: Run, decided: Fire | Miss) -> None:
        late = decided.late if isinstance(decided, Miss) else None
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
