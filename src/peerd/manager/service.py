"""The manager's process: its beat, the rescue of frozen tasks, the activity of nodes, and the chores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.domain.errors import DatabaseAway
from peerd.domain.lifecycle import Event
from peerd.manager.chores import CHORES, Chore
from peerd.manager.pulse import Pulse
from peerd.runtime.events import (
    ChoreRan,
    ComponentFailed,
    Events,
    NodesSilent,
    PinnedStuck,
    RescueHeld,
    ScheduleRunsLost,
    TasksTakenBack,
)
from peerd.runtime.faults import words
from peerd.runtime.link import Link
from peerd.store.database import Database, DatabaseThreads
from peerd.store.finish import database_now
from peerd.store.nodes import deactivate_silent
from peerd.store.outages import Outages
from peerd.store.presence import enter_patiently
from peerd.store.processes import beat_process
from peerd.store.rescue import rescue_frozen
from peerd.store.schedule_runs import lose_runs
from peerd.store.sweeps import count_pinned

CHORE_WITHIN: Final = 3.0
"""Seconds that a stop waits for the chore that runs."""
TURN: Final = 0.5
"""Seconds after which a chore that has more to do lets the others have their turn. It goes on in the next round."""
REST: Final = 0.5
"""How long a chore rests after a full batch, as a share of what the batch took: a busy database makes it slower."""
ROUNDS_TO_LOST_RUNS: Final = 10
"""Between two looks for scheduled runs of nodes that are gone."""
REPORT_PINNED_EVERY: Final = 60.0
"""Seconds."""


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
        self._round = 0
        self._next_pinned_report = 0.0
        self._held_said = False
        self._has_more: set[str] = set()
        self._beaten_at = 0.0
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
        self._round += 1
        await self._guarded("beat", self._beat)
        await self._guarded("rescue", self._rescue)
        if self._round % ROUNDS_TO_LOST_RUNS == 0:
            await self._guarded("lost runs", self._lose_runs)
        await self._guarded("nodes", self._deactivate_nodes)
        for chore in CHORES:
            if self._is_due(chore) and not self._stopping.is_set():
                await self._guarded(chore.name, partial(self._run_chore, chore))
        await self._guarded("report pinned", self._report_pinned)

    def _is_due(self, chore: Chore) -> bool:
        return chore.name in self._has_more or (self._round - 1) % chore.periods == 0

    async def _guarded(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """One step; what goes wrong in it does not keep the others from theirs."""
        try:
            await step()
        except DatabaseAway:
            return  # the agent and the workers say so; the pulse will notice the gap
        except Exception as error:  # noqa: BLE001 - a chore that fails is tried again in the next round
            self._events.emit(
                ComponentFailed(component=f"chore {name}", error=words(error), again_in=self._settings.every)
            )

    async def _beat(self) -> None:
        moment = await self._threads.run(_beat_and_ask_the_time, self._process_id)
        self._pulse.beat(self._now(), moment)
        self._pulse_among_nodes.beat(self._now(), moment)
        self._beaten_at = self._now()

    async def _rescue(self) -> None:
        now = self._now()
        if not self._pulse.may_judge(now):
            self._say_held(self._pulse.needed - self._pulse.steady_for(now))
            return
        self._held_said = False
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
        """Until the next round; none while a chore has more to do."""
        if self._has_more:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.every * random.uniform(0.8, 1.2)):
                await self._stopping.wait()


def _beat_and_ask_the_time(connection: Connection, process_id: int) -> datetime:
    beat_process(connection, process_id)
    return database_now(connection)
