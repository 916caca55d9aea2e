"""In the agent: polls the schedules' rows about every second and when a tick is due, fires ticks, and starts runs.

Each poll reads the database's clock, and only differences are measured between two polls, so this machine's own clock
does not matter. The tables are the truth: a manual run, a disabled schedule or a lost node is found at the next poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.pacing import Backoff
from peerd.domain.schedule import CLUSTER, FireTick, MissTick, RunStatus, Schedule, WaitForTick, decide_tick
from peerd.runtime.observability.events import EventBus, ScheduleFailed
from peerd.runtime.observability.log_messages import schedule_ticked
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.custom_triggers import CustomTriggers
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.run_dispatcher import RunDispatcher
from peerd.shell import ProcessShell
from peerd.store import schedules as stored
from peerd.store.connection.database import DatabaseThreads
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun
from peerd.store.schedules import (
    CLUSTER_ROW,
    ScheduleRow,
    ScheduleSnapshot,
    StoredSchedulesState,
    clock_node_id,
    declare_stored_schedule,
    read_stored_schedules,
)

T = TypeVar("T")

POLL_INTERVAL: Final = 1.0
"""Maximum of seconds between two polls, while the node has schedules."""
CLOCK_MARGIN: Final = 0.001
"""Seconds after a tick at which it is polled: SQLite's clock has milliseconds."""
COMPONENT: Final = "schedules"
STOP_TIMEOUT: Final = 1.0
"""Seconds that the current poll, and the recording of known process deaths, may take at a stop."""


class ComponentStarter(Protocol):
    """The agent's supervisor of components, which is in a higher layer."""

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> object: ...
    async def stop(self, names: Iterable[str], within: float) -> None: ...


class Scheduler:
    """The schedules of a node, as a component of its agent: fires their ticks, and has their runs dispatched.

    ``find`` returns the object of ``module:name``. Without a heartbeat for ``silence`` seconds another node counts as
    gone.
    """

    def __init__(
        self, registry: ScheduleRegistry, find: Callable[[str], object], *, incarnation: str, silence: float
    ) -> None:
        self._registry = registry
        self._find = find
        self._incarnation = incarnation
        self._silence = silence
        self._components: ComponentStarter | None = None
        self._ready = asyncio.Event()
        self._declared: dict[str, str] = {}
        self._process_deaths: list[tuple[int, str]] = []
        self._stored_state: StoredSchedulesState | None = None
        self._must_read_stored = True
        self._stored_errors: dict[str, str] = {}
        self._errors: dict[str, str] = {}
        """The last error of each schedule that has failed since its last success."""
        self._stored_created: dict[str, datetime] = {}
        self._wake_event = asyncio.Event()

    async def start(self, shell: ProcessShell, components: ComponentStarter) -> None:
        """Start; ticks are fired when the node is ready."""
        self._components = components
        self.attach(shell.process, DatabaseThreads(shell.database, threads=2), shell.node.id, shell.events)

        async def run() -> None:
            await self._ready.wait()
            await self.run()

        components.start(COMPONENT, run)

    def attach(self, process: ProcessContext, threads: DatabaseThreads, node_id: int, events: EventBus) -> None:
        """Work with this process of the agent, and for this node."""
        self._threads, self._events = threads, events
        self._identity = NodeIdentity(node_id, self._incarnation)
        self._dispatcher = RunDispatcher(self._registry, process, threads, self._identity, events)
        self._custom = CustomTriggers(self._find, threads, self._identity, events)
        self._registry.on_change = self._dispatcher.wake = self._custom.wake = self._wake_event.set

    def notice_stored(self, state: StoredSchedulesState | None) -> None:
        """Read the schedules that are in the database, if they have changed.

        Args:
            state: theirs, as just read; None: it may have changed.
        """
        if state is None or state != self._stored_state:
            self._stored_state = state
            self.reread_stored()

    def reread_stored(self) -> None:
        """Schedules that are in the database have changed, or may have."""
        self._must_read_stored = True
        self._wake_event.set()

    def receive(self, message: Mapping[str, Any]) -> None:
        """A message of the master: the node is ready, or a process has died."""
        match message.get("type"):
            case "ready":
                self._ready.set()
            case "death":
                self.on_process_death(int(message["pid"]), str(message["cause"]["text"]))

    def on_process_death(self, pid: int, cause: str) -> None:
        """A process of the node has died: its runs end."""
        self._process_deaths.append((pid, cause))
        self._wake_event.set()

    async def stop(self, grace: float) -> None:
        """Stop polling, and record the ends that are known."""
        if self._components is None:
            return
        await self._components.stop([COMPONENT], within=STOP_TIMEOUT)
        with suppress(TimeoutError, DatabaseUnavailable):  # runs that stay open are found lost by other nodes
            async with asyncio.timeout(STOP_TIMEOUT):
                await self.record_process_deaths()

    async def run(self) -> None:
        """Poll until cancelled."""
        pauses = Backoff(first=POLL_INTERVAL)
        try:
            while True:
                self._wake_event.clear()
                try:
                    pause = await self.step()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._wake_event.wait()
                    pauses.reset()
                except DatabaseUnavailable:  # the heartbeat reports it
                    await asyncio.sleep(pauses.next())
        finally:
            await self._custom.stop_all()

    async def step(self) -> float | None:
        """Poll once; return the seconds until the next one, None while the node has no schedules."""
        await self.record_process_deaths()
        if self._must_read_stored:
            await self._read_stored()
        await self._declare()
        schedules = list(self._registry)
        if not schedules:
            return None
        snapshot = await self._read_snapshot(schedules)
        fired = [await self._isolate(schedule, self._tick(schedule, snapshot)) for schedule in schedules]
        if any(fired):
            snapshot = await self._read_snapshot(schedules)
        await self._dispatcher.process_snapshot(snapshot)
        return self._seconds_to_next_poll(snapshot)

    async def record_process_deaths(self) -> None:
        """End the runs of processes that have died."""
        while self._process_deaths:
            await self._dispatcher.end_runs_of_dead_process(*self._process_deaths[0])
            self._process_deaths.pop(0)

    async def _read_stored(self) -> None:
        """Adopt the schedules that were created at run time; report those that this node cannot have."""
        self._must_read_stored = False
        try:
            stored = await self._threads.read(read_stored_schedules)
        except DatabaseUnavailable:
            self._must_read_stored = True
            raise
        taken = self._registry.set_stored(stored.schedules)
        for name, created_at in stored.created.items():
            if self._stored_created.get(name) != created_at and name not in taken:
                self._declared.pop(name, None)  # deleting the one of this name before has deleted its rows
        self._stored_created = stored.created
        errors = stored.errors | dict.fromkeys(taken, "peerd.toml of this node has this name too, and counts here")
        for name, error in errors.items():
            if self._stored_errors.get(name) != error:
                self._events.emit(ScheduleFailed(schedule=name, error=error))
        self._stored_errors = errors

    async def _declare(self) -> None:
        """Write which schedules this node has."""
        for name in [name for name in self._declared if self._registry.get(name) is None]:
            await self._threads.run(stored.withdraw_schedule, name, self._identity)
            await self._custom.stop(name)
            del self._declared[name]
        for schedule in self._registry:
            if self._declared.get(schedule.name) != schedule.fingerprint:
                is_stored = self._registry.is_stored(schedule.name)
                declare = declare_stored_schedule if is_stored else stored.declare_schedule
                was_declared = await self._threads.run(declare, schedule, self._identity, self._silence)
                if is_stored and not was_declared:
                    self.reread_stored()  # it was deleted meanwhile
                    continue
                self._declared[schedule.name] = schedule.fingerprint
                if schedule.is_custom:
                    await self._isolate(schedule, self._custom.start(schedule))

    async def _read_snapshot(self, schedules: Iterable[Schedule]) -> ScheduleSnapshot:
        return await self._threads.read(stored.read_snapshot, [schedule.name for schedule in schedules], self._identity)

    async def _isolate(self, schedule: Schedule, step: Awaitable[T]) -> T | None:
        """Record what goes wrong with a schedule, so that the others still tick."""
        try:
            result = await step
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            text = describe_exception(error)
            if self._errors.get(schedule.name) != text:  # it is tried again at each poll
                self._errors[schedule.name] = text
                self._events.emit(ScheduleFailed(schedule=schedule.name, error=text))
                await self._threads.run(stored.record_schedule_error, schedule.name, self._identity, text)
            return None
        self._errors.pop(schedule.name, None)
        return result

    async def _tick(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> ScheduleRun | None:
        row = self._clock_row(schedule, snapshot)
        if row is None or not await self._definition_matches(schedule, row):
            return None
        if self._is_disabled(schedule, snapshot):
            if row.next_at is not None and row.next_at <= snapshot.now:
                await self._threads.run(stored.skip_tick, row, schedule, snapshot.now)
            return None
        if snapshot.draining and schedule.type == CLUSTER:
            return None
        decision = _decide(schedule, row, snapshot)
        if isinstance(decision, WaitForTick):
            return None
        run = await self._threads.run(stored.fire_tick, row, schedule, decision)
        if run is not None:
            self._events.emit(
                schedule_ticked(
                    schedule=run.schedule,
                    run_id=run.id,
                    tick=run.tick_at.isoformat(timespec="milliseconds"),
                    status=run.status,
                    reason=run.error if run.status in (RunStatus.SKIPPED, RunStatus.MISSED) else None,
                    late=decision.late if isinstance(decision, MissTick) else None,
                )
            )
        return run

    async def _definition_matches(self, schedule: Schedule, row: ScheduleRow) -> bool:
        """Whether the row has this node's definition; a definition that no living node has is replaced."""
        if row.fingerprint == schedule.fingerprint:
            return True
        take_over = stored.take_over_definition
        if schedule.type == CLUSTER and await self._threads.run(take_over, schedule, self._identity, self._silence):
            self._wake_event.set()
        return False

    def _seconds_to_next_poll(self, snapshot: ScheduleSnapshot) -> float:
        pause = POLL_INTERVAL
        for schedule in self._registry:
            row = self._clock_row(schedule, snapshot)
            if row is None or schedule.name in self._errors or self._is_disabled(schedule, snapshot):
                continue
            if row.fingerprint == schedule.fingerprint:
                decision = _decide(schedule, row, snapshot)
                if isinstance(decision, WaitForTick) and decision.until is not None:
                    pause = min(pause, (decision.until - snapshot.now).total_seconds() + CLOCK_MARGIN)
        return max(pause, CLOCK_MARGIN)

    def _clock_row(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> ScheduleRow | None:
        return snapshot.rows.get((schedule.name, clock_node_id(schedule, self._identity)))

    def _is_disabled(self, schedule: Schedule, snapshot: ScheduleSnapshot) -> bool:
        cluster = snapshot.rows.get((schedule.name, CLUSTER_ROW))
        return not schedule.enabled or cluster is None or cluster.disabled


def _decide(schedule: Schedule, row: ScheduleRow, snapshot: ScheduleSnapshot) -> WaitForTick | FireTick | MissTick:
    anchor = row.anchor_at or snapshot.now
    return decide_tick(schedule, row.next_at, anchor, snapshot.now, f"{row.name} {row.node_id}")
