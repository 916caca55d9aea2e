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
from peerd.domain.errors import DatabaseAway
from peerd.domain.lifecycle import Event
from peerd.manager.chores import CHORES, Chore
from peerd.manager.rescue_guard import Pulse
from peerd.runtime.observability.events import (
    ChoreRan,
    ComponentFailed,
    Events,
    NodesSilent,
    PinnedStuck,
    RescueHeld,
    ScheduleRunsLost,
    TasksTakenBack,
)
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import words
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import Backoff, Outages
from peerd.store.maintenance.chore_batches import count_pinned
from peerd.store.maintenance.due import Agenda, read_agenda
from peerd.store.maintenance.rescue import rescue_frozen
from peerd.store.nodes.nodes import deactivate_silent
from peerd.store.nodes.process_registration import enter_patiently
from peerd.store.nodes.processes import beat_process
from peerd.store.schedule_runs import lose_runs

CHORE_WITHIN: Final = 3.0
"""Seconds that a stop waits for the chore that runs."""
TURN: Final = 0.5
"""Seconds after which a chore that has more to do lets the others have their turn. It goes on in the next round."""
REST: Final = 0.5
"""How long a chore rests after a full batch, as a share of what the batch took: a busy database makes it slower."""
PERIODS_TO_LOST_RUNS: Final = 10
"""Between two looks for scheduled runs of nodes that are gone."""
REPORT_PINNED_EVERY: Final = 60.0
"""Seconds."""
LONGEST_PAUSE: Final = 5.0
"""Seconds between two rounds at the most, unless ``every`` is longer."""
AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)
"""A moment that has come."""
A_MOMENT: Final = 0.001
"""Seconds after a moment at which the database knows that it has come."""


class ManagerService:
    """The manager of one node.

    Args:
        settings: the periods.
        database: of this process.
        events: what happens.
    """

    def __init__(self, settings: ManagerSettings, database: Database, events: Events) -> None:
        self._settings = settings
        self._database = database
        self._threads = DatabaseThreads(database, threads=1)
        self._events = events
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._next_runs: dict[str, float] = {}
        """When a step may come again, by its name."""
        self._wakes_at = 0.0
        self._next_pinned_report = 0.0
        self._held_said = False
        self._has_more: set[str] = set()
        self._beaten_at = 0.0
        self._agenda: Agenda | None = None
        self._pauses = Backoff(first=settings.every, longest=max(settings.every, LONGEST_PAUSE))
        self._pulse = Pulse(needed=settings.max_update, gap=max(3 * settings.every, settings.max_update / 3))
        self._pulse_among_nodes = Pulse(settings.inactive_after, gap=max(3 * settings.every, settings.inactive_after))

    async def start(self, link: Link) -> Mapping[str, object]:
        """Register the process."""
        self._now = asyncio.get_running_loop().time
        outages = Outages(self._events, self._now)
        _, self._process_id = await enter_patiently(self._database, link, outages)
        return {"process_id": self._process_id}

    async def run(self) -> None:
        """A round of chores each period, until `quiet`."""
        try:
            while not self._stopping.is_set():
                await self._round_of_chores()
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
            async with asyncio.timeout(CHORE_WITHIN):
                await self._ended.wait()

    async def _round_of_chores(self) -> None:
        self._agenda = None
        if not await self._guarded("beat", self._beat):
            self._wait_for_the_database()
            return
        self._pauses.reset()
        self._wakes_at = self._now() + self._longest_pause()
        if self._may_rescue() and self._has_come("rescue", self._touch_is_late()):
            await self._guarded("rescue", self._rescue)
        if self._has_come("lost runs", self._sees(lambda agenda: agenda.runs), PERIODS_TO_LOST_RUNS):
            await self._guarded("lost runs", self._lose_runs)
        if self._has_come("nodes", self._beat_is_late()):
            await self._guarded("nodes", self._deactivate_nodes)
        for chore in CHORES:
            if self._is_due(chore) and not self._stopping.is_set():
                await self._guarded(chore.name, partial(self._run_chore, chore))
        await self._guarded("report pinned", self._report_pinned)

    # ---------------------------------------------------------------- what there is to do, and when

    def _has_come(self, name: str, due: datetime | None, periods: int = 1) -> bool:
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
            self._wakes_at = min(self._wakes_at, soonest)
            return False
        self._next_runs[name] = now + periods * self._settings.every
        self._wakes_at = min(self._wakes_at, self._next_runs[name])  # what comes after it is on the next agenda
        return True

    def _is_due(self, chore: Chore) -> bool:
        return self._has_come(chore.name, self._due(chore), chore.periods) or chore.name in self._has_more

    def _due(self, chore: Chore) -> datetime | None:
        if self._agenda is None or chore.due is None:
            return AT_ONCE
        return chore.due(self._agenda, self._settings)

    def _sees(self, what: Callable[[Agenda], object]) -> datetime | None:
        return AT_ONCE if self._agenda is None or what(self._agenda) else None

    def _touch_is_late(self) -> datetime | None:
        if self._agenda is None:
            return AT_ONCE
        oldest = self._agenda.oldest_touch
        return None if oldest is None else oldest + timedelta(seconds=self._settings.max_update)

    def _beat_is_late(self) -> datetime | None:
        if self._agenda is None:
            return AT_ONCE
        oldest = self._agenda.oldest_beat
        late = None if oldest is None else oldest + timedelta(seconds=self._settings.inactive_after)
        return None if self._is_alone and late is not None and late > self._agenda.now else late

    @property
    def _is_alone(self) -> bool:
        """Whether there is no other node whose silence would have to be noticed the moment it is too long."""
        return self._agenda is not None and self._agenda.nodes <= 1

    def _longest_pause(self) -> float:
        """Seconds to the next round when nothing is to be done before. Its own beats must leave no gap."""
        gap = self._pulse.gap if self._is_alone else min(self._pulse.gap, self._pulse_among_nodes.gap)
        return max(self._settings.every, min(LONGEST_PAUSE, gap / 2))

    def _wait_for_the_database(self) -> None:
        """Each step of the round would ask anew for a database that is away."""
        self._wakes_at = self._now() + self._pauses.next()

    async def _guarded(self, name: str, step: Callable[[], Awaitable[None]]) -> bool:
        """One step; what goes wrong in it does not keep the others from theirs. Whether the database was there."""
        try:
            await step()
        except DatabaseAway:
            return False  # the agent and the workers say so; the pulse will notice the gap
        except Exception as error:  # noqa: BLE001 - a chore that fails is tried again in the next round
            self._events.emit(
                ComponentFailed(component=f"chore {name}", error=words(error), again_in=self._settings.every)
            )
        return True

    async def _beat(self) -> None:
        """Write that it goes on, which is what gives it the right to judge others; and look what there is to do."""
        self._agenda = await self._threads.run_repeatable(_beat_and_read_agenda, self._process_id)
        self._pulse.beat(self._now(), self._agenda.now)
        self._pulse_among_nodes.beat(self._now(), self._agenda.now)
        self._beaten_at = self._now()

    def _may_rescue(self) -> bool:
        """Whether its pulse has been steady for long enough; if not, the next round comes when it may be."""
        missing = self._pulse.needed - self._pulse.steady_for(self._now())
        if self._pulse.may_judge(self._now()):
            self._held_said = False
            return True
        self._say_held(missing)
        self._wakes_at = min(self._wakes_at, self._now() + missing)
        return False

    async def _rescue(self) -> None:
        taken = await self._threads.run(
            rescue_frozen, self._settings.max_update, self._settings.batch, as_of=self._pulse.last_beat
        )
        if taken:
            dead = sum(one.event is Event.DIE for one in taken)
            ids = tuple(one.task_id for one in taken)
            cause = f"untouched for {self._settings.max_update:g} s"
            self._events.emit(TasksTakenBack(cause=cause, task_ids=ids, dead=dead))

    async def _lose_runs(self) -> None:
        """End the scheduled runs of nodes that are gone, by the same rule as tasks are rescued."""
        if self._pulse.may_judge(self._now()):
            lost = await self._threads.run(lose_runs, self._settings.max_update, as_of=self._pulse.last_beat)
            if lost:
                self._events.emit(ScheduleRunsLost(run_ids=tuple(lost)))

    def _say_held(self, seconds: float) -> None:
        if not self._held_said:
            self._held_said = True
            self._events.emit(RescueHeld(seconds=seconds, reason=self._pulse.reason))

    async def _deactivate_nodes(self) -> None:
        """Say which nodes are silent; after an outage only when all have had the time to be heard again."""
        if not self._pulse_among_nodes.may_judge(self._now()):
            return
        silent = await self._threads.run(deactivate_silent, self._settings.inactive_after)
        if silent:
            self._events.emit(NodesSilent(nodes=tuple(silent)))

    async def _run_chore(self, chore: Chore) -> None:
        """One turn: batch after batch, with a rest after each, while there is more and the turn lasts."""
        self._has_more.discard(chore.name)
        ends, total = self._now() + TURN, 0
        while True:
            began = self._now()
            count = await self._threads.run(chore.run, self._settings)
            total += count
            if count < self._settings.batch or self._stopping.is_set():
                break
            if self._now() >= ends:
                self._has_more.add(chore.name)
                break
            await asyncio.sleep(REST * (self._now() - began))
            await self._beat_in_time()
        if total:
            self._events.emit(ChoreRan(chore=chore.name, count=total))

    async def _beat_in_time(self) -> None:
        """Beat, if it is time: chores that have much to do must not look like a node that was away."""
        if self._now() - self._beaten_at >= self._settings.every:
            await self._guarded("beat", self._beat)

    async def _report_pinned(self) -> None:
        if self._now() < self._next_pinned_report:
            return
        self._next_pinned_report = self._now() + REPORT_PINNED_EVERY
        count = await self._threads.read(count_pinned, self._settings.pinned_after)
        if count:
            self._events.emit(PinnedStuck(count=count, policy=self._settings.pinned_policy))

    async def _pause(self) -> None:
        """Until there is something to do, spread so that nodes do not look together; never shorter than ``every``.

        There is no pause while a chore has more to do and the database is there: it has rested between its batches.
        """
        if self._has_more and self._agenda is not None:
            return
        rest = max(self._settings.every * random.uniform(0.8, 1.2), self._wakes_at + A_MOMENT - self._now())
        with suppress(TimeoutError):
            async with asyncio.timeout(min(rest, self._longest_pause() * random.uniform(0.8, 1.2))):
                await self._stopping.wait()


def _beat_and_read_agenda(connection: Connection, process_id: int) -> Agenda:
    beat_process(connection, process_id)
    return read_agenda(connection)
