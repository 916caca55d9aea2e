"""The manager's process: its heartbeat, the rescue of untouched tasks, the activity of nodes, and the chores."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings, QueueSettings, StatisticsSettings
from peerd.domain.errors import DatabaseUnavailable, RowLocked
from peerd.domain.pacing import Backoff
from peerd.manager.chores import Chore, ChoreDue, bulk_chore, make_chores, moment_after, statistics_chores
from peerd.manager.samplers import QueueSampler, Sampler, StorageSampler
from peerd.runtime.observability.events import (
    ChoreRan,
    ComponentFailed,
    NodesMarkedInactive,
    PinnedTasksBlocked,
    RescueSuspended,
    ScheduleRunsLost,
)
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.shell import ProcessShell, Service
from peerd.store.chore_batches import count_pinned, nodes_of_pinned
from peerd.store.connection.database import DatabaseThreads
from peerd.store.due import DueMaintenance, read_due_maintenance
from peerd.store.nodes import deactivate_silent
from peerd.store.processes import heartbeat_process
from peerd.store.rescue import events_of_rescue, rescue_untouched
from peerd.store.schedule_runs import mark_lost_runs

CHORE_STOP_TIMEOUT: Final = 3.0
"""Seconds that a stop waits for the running chore."""
CHORE_TIME_SLICE: Final = 0.5
"""Seconds after which a chore with more work lets the others run; it continues in the next round."""
BATCH_PAUSE_RATIO: Final = 0.5
"""Pause after a full batch, as a share of the batch's duration: a busy database slows the chore down."""
LOST_RUNS_PERIODS: Final = 10
"""Periods between two searches for scheduled runs of nodes that are gone."""
PINNED_REPORT_INTERVAL: Final = 60.0
LONGEST_FAILED_PAUSE: Final = 30.0
"""Seconds until a step that has failed may run again; its own period may be an hour."""
LONGEST_PAUSE: Final = 5.0
"""Maximum of seconds between two rounds, unless ``every`` is longer."""
ALREADY_DUE: Final = datetime.min.replace(tzinfo=UTC)
CLOCK_MARGIN: Final = 0.001
"""Seconds after a moment at which it has passed on the database's clock as well."""


class ManagerService(Service):
    """The manager of one node.

    Args:
        settings: [manager].
        queues: the sections ``[queues.NAME]``.
        statistics: [statistics]; None: it leaves the time series alone and does not look at the queues.
    """

    heartbeat_every = None  # each round writes it

    def __init__(
        self,
        settings: ManagerSettings,
        queues: Mapping[str, QueueSettings] | None = None,
        statistics: StatisticsSettings | None = None,
    ) -> None:
        self._settings = settings
        self._statistics = statistics
        self._chores = [*make_chores(queues or {}, settings, time.monotonic)]
        if statistics is not None:
            self._chores += statistics_chores(statistics, time.monotonic)
        self._chores.append(bulk_chore(settings.batch))
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._next_runs: dict[str, float] = {}
        """The earliest next run of a step, by its name."""
        self._next_round_at = 0.0
        self._next_pinned_report = 0.0
        self._hold_reported = False
        self._has_more: set[str] = set()
        self._heartbeat_at = 0.0
        self._due: DueMaintenance | None = None
        """Read with this round's heartbeat; None where that failed otherwise than by an outage: everything is due."""
        self._pauses = Backoff(first=settings.every, longest=max(settings.every, LONGEST_PAUSE))
        self._rescue_guard = RescueGuard(settings.max_update, gap=max(3 * settings.every, settings.max_update / 3))
        self._activity_guard = RescueGuard(
            settings.inactive_after, gap=max(3 * settings.every, settings.inactive_after)
        )

    async def start(self, shell: ProcessShell) -> None:
        """Prepare the samplers and the thread of the chores."""
        self._node, self._process_id = shell.node, shell.process_id
        self._now = asyncio.get_running_loop().time
        self._events = shell.events
        self._threads = DatabaseThreads(shell.database, threads=1)
        self._samplers: list[Sampler] = [StorageSampler(shell.database, shell.events, time.monotonic)]
        if self._statistics is not None:
            of_queues = self._statistics, self._settings.max_wait
            self._samplers.append(QueueSampler(shell.database, shell.events, *of_queues, time.monotonic))

    async def run(self) -> None:
        """A round of chores each period, until `drain`."""
        try:
            while not self._stopping.is_set():
                await self._run_round()
                await self._pause()
        finally:
            self._ended.set()

    async def drain(self, grace: float) -> None:
        """Start no further round, and let the running chore end: it is a short transaction."""
        self._stopping.set()
        for sampler in self._samplers:
            await sampler.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(CHORE_STOP_TIMEOUT):
                await self._ended.wait()

    async def _run_round(self) -> None:
        self._due = None
        if not await self._run_step("heartbeat", self._heartbeat):
            self._next_round_at = self._now() + self._pauses.next()  # each further step would time out as well
            return
        self._pauses.reset()
        self._next_round_at = self._now() + self._longest_pause()
        untouched_at = self._due_at(lambda due, settings: moment_after(due.oldest_touch, settings.max_update))
        if self._may_rescue() and self._is_due("rescue", untouched_at):
            await self._run_step("rescue", self._rescue)
        if self._is_due("lost runs", self._due_at(lambda due, _: due.now if due.runs else None), LOST_RUNS_PERIODS):
            await self._run_step("lost runs", self._mark_lost_runs)
        if self._is_due("nodes", self._due_at(self._node_silent_at)):
            await self._run_step("nodes", self._deactivate_nodes)
        for chore in self._chores:
            if chore.only_on_first and not self._is_first_node:
                continue
            is_due = self._is_due(chore.name, self._due_at(chore.due), chore.periods) or chore.name in self._has_more
            if is_due and not self._stopping.is_set():
                await self._run_step(chore.name, partial(self._run_chore, chore))
        await self._run_step("report pinned", self._report_pinned)
        for sampler in self._samplers:
            self._sample_if_due(sampler)

    # ---------------------------------------------------------------- when a step is due

    def _is_due(self, name: str, due: datetime | None, periods: int = 1) -> bool:
        """Whether a step may run now: it is due, and ``periods`` have passed since its last run.

        The next round starts in time for it. ``due`` is by the database's clock; None: there is nothing to do.
        """
        if due is None:
            return False
        now = self._now()
        soonest = self._next_runs.get(name, now)
        if self._due is not None:
            soonest = max(soonest, now + (due - self._due.now).total_seconds())
        is_due = soonest <= now
        if is_due:
            soonest = self._next_runs[name] = now + periods * self._settings.every
        self._next_round_at = min(self._next_round_at, soonest)
        return is_due

    def _due_at(self, read: ChoreDue) -> datetime | None:
        return ALREADY_DUE if self._due is None else read(self._due, self._settings)

    def _node_silent_at(self, due: DueMaintenance, settings: ManagerSettings) -> datetime | None:
        silent_at = moment_after(due.oldest_heartbeat, settings.inactive_after)
        return None if self._is_only_node and silent_at is not None and silent_at > due.now else silent_at

    @property
    def _is_first_node(self) -> bool:
        """Whether this node does what one node does for all: the first of the active ones, as of this round."""
        return self._due is not None and self._due.first_node == self._node.id

    @property
    def _is_only_node(self) -> bool:
        """Whether there is no other node whose silence must be noticed as soon as it is too long."""
        return self._due is not None and self._due.nodes <= 1

    def _longest_pause(self) -> float:
        """Maximum of seconds to the next round: this node's own heartbeats must have no gap."""
        gap = self._rescue_guard.gap if self._is_only_node else min(self._rescue_guard.gap, self._activity_guard.gap)
        return max(self._settings.every, min(LONGEST_PAUSE, gap / 2))

    async def _pause(self) -> None:
        """Wait for the next round: at least ``every``, spread so that nodes do not read at the same time.

        There is no pause while a chore has more to do and the database answers: it has paused after its batches.
        """
        if self._has_more and self._due is not None:
            return
        pause = max(self._settings.every * random.uniform(0.8, 1.2), self._next_round_at + CLOCK_MARGIN - self._now())
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, self._longest_pause() * random.uniform(0.8, 1.2))):
                await self._stopping.wait()

    # ---------------------------------------------------------------- the steps

    async def _run_step(self, name: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Run one step, and report its failure so that the others still run. False when the database is away."""
        try:
            await step()
        except (DatabaseUnavailable, RowLocked):
            return False  # the agent and the workers report it; the guards find the gap
        except Exception as error:  # noqa: BLE001 - a step that failed is repeated, and the others still run
            now = self._now()
            again_at = self._next_runs[name] = min(self._next_runs.get(name, now), now + LONGEST_FAILED_PAUSE)
            described = describe_exception(error)
            self._events.emit(ComponentFailed(component=f"chore {name}", error=described, again_in=again_at - now))
        return True

    async def _heartbeat(self) -> None:
        """Write the heartbeat, which is required before rescuing, and read what is due."""
        self._due = await self._threads.run_short(_heartbeat_and_read_due, self._process_id)
        self._rescue_guard.record_heartbeat(self._now(), self._due.now)
        self._activity_guard.record_heartbeat(self._now(), self._due.now)
        self._heartbeat_at = self._now()

    def _may_rescue(self) -> bool:
        """Whether the guard allows it; if not, that is reported once, and the next round starts when it may."""
        if self._rescue_guard.may_rescue(self._now()):
            self._hold_reported = False
            return True
        missing = self._rescue_guard.needed - self._rescue_guard.steady_seconds(self._now())
        if not self._hold_reported:
            self._hold_reported = True
            self._events.emit(RescueSuspended(seconds=missing, reason=self._rescue_guard.reason))
        self._next_round_at = min(self._next_round_at, self._now() + missing)
        return False

    async def _rescue(self) -> None:
        silence = self._settings.max_update
        rescued = await self._threads.run(
            rescue_untouched, silence, self._settings.batch, as_of=self._rescue_guard.last_heartbeat
        )
        for event in events_of_rescue(rescued, f"untouched for {silence:g} s"):
            self._events.emit(event)

    async def _mark_lost_runs(self) -> None:
        """End the scheduled runs of nodes that are gone, under the same condition as a rescue."""
        if self._rescue_guard.may_rescue(self._now()):
            lost = await self._threads.run(
                mark_lost_runs, self._settings.max_update, as_of=self._rescue_guard.last_heartbeat
            )
            if lost:
                self._events.emit(ScheduleRunsLost(run_ids=tuple(lost)))

    async def _deactivate_nodes(self) -> None:
        """Mark silent nodes; after an outage only when all nodes have had time for a heartbeat."""
        if self._activity_guard.may_rescue(self._now()):
            silent = await self._threads.run(deactivate_silent, self._settings.inactive_after)
            if silent:
                self._events.emit(NodesMarkedInactive(nodes=tuple(silent)))

    async def _run_chore(self, chore: Chore) -> None:
        """Run a time slice: batch after batch, with a pause after each. Heartbeats continue meanwhile."""
        self._has_more.discard(chore.name)
        ends, total = self._now() + CHORE_TIME_SLICE, 0
        while not self._stopping.is_set():
            began = self._now()
            result = await self._threads.run(chore.run, *chore.arguments(self._settings))
            seconds = self._now() - began
            batch = chore.record(result, self._settings.batch, seconds)
            total += batch.rows
            for event in batch.events:
                self._events.emit(event)
            if not batch.has_more or self._stopping.is_set():
                break
            await asyncio.sleep(max(BATCH_PAUSE_RATIO * seconds, batch.pause))
            if self._now() >= ends:
                self._has_more.add(chore.name)
                break
            if self._now() - self._heartbeat_at >= self._settings.every:
                await self._run_step("heartbeat", self._heartbeat)
        if total:
            self._events.emit(ChoreRan(chore=chore.name, count=total))

    def _sample_if_due(self, sampler: Sampler) -> None:
        if self._due is not None:
            sampler.start_if_due(self._due, self._node.id)

    async def _report_pinned(self) -> None:
        if self._now() < self._next_pinned_report:
            return
        self._next_pinned_report = self._now() + PINNED_REPORT_INTERVAL
        count = await self._threads.read(count_pinned, self._settings.pinned_after)
        if count:
            nodes = tuple(await self._threads.read(nodes_of_pinned, self._settings.pinned_after))
            self._events.emit(PinnedTasksBlocked(count=count, policy=self._settings.pinned_policy, nodes=nodes))


def _heartbeat_and_read_due(connection: Connection, process_id: int) -> DueMaintenance:
    heartbeat_process(connection, process_id)
    return read_due_maintenance(connection)


# ---------------------------------------------------------------- rescue guard


class RescueGuard:
    """Whether this node may judge that others are silent: the heartbeats of its manager.

    A node that was cut off, frozen or asleep finds every task untouched although only the node itself was away, and
    after an outage of the database no task has been touched. So a node rescues only after its own heartbeats have been
    written without a gap for as long as the silence that counts against others. That time begins again after

    - a gap between two heartbeats on its monotonic clock (it was frozen, or the database was away);
    - a step between its monotonic clock and the database's clock (a clock was set, or the machine slept: the monotonic
      clock does not count sleep).

    It reads no clock: the times are passed in.

    Args:
        needed: seconds without a gap before such a silence of others may be judged.
        gap: seconds between two heartbeats that are too many.

    >>> from datetime import UTC, datetime, timedelta
    >>> midnight = datetime(2026, 1, 1, tzinfo=UTC)
    >>> guard = RescueGuard(needed=30.0, gap=5.0)
    >>> for second in range(0, 31, 3):
    ...     guard.record_heartbeat(float(second), midnight + timedelta(seconds=second))
    >>> guard.steady_seconds(30.0), guard.may_rescue(30.0)
    (30.0, True)
    >>> guard.record_heartbeat(33.0, midnight + timedelta(hours=1))
    >>> guard.may_rescue(33.0), guard.reason
    (False, 'the clocks of the database and of this node moved apart by 3567.0 s')
    """

    def __init__(self, needed: float, gap: float) -> None:
        self.needed = needed
        self.reason = "it has just begun"
        self.gap = gap
        self._since: float | None = None
        self._last: tuple[float, datetime] | None = None

    def record_heartbeat(self, monotonic: float, database: datetime) -> None:
        """Record a written heartbeat: this node's monotonic clock at the reply, and the database's clock in it."""
        fault = self._discontinuity(monotonic, database)
        if fault is not None:
            self.reason = fault
        if fault is not None or self._since is None:
            self._since = monotonic
        self._last = (monotonic, database)

    @property
    def last_heartbeat(self) -> datetime | None:
        """The latest heartbeat by the database's clock: until then, others were able to write theirs too."""
        return None if self._last is None else self._last[1]

    def steady_seconds(self, monotonic: float) -> float:
        """Seconds of heartbeats without a gap; 0 when the latest one is too long ago."""
        if self._since is None or self._last is None or monotonic - self._last[0] > self.gap:
            return 0.0
        return self._last[0] - self._since

    def may_rescue(self, monotonic: float) -> bool:
        """Whether the heartbeats have had no gap for long enough."""
        return self.steady_seconds(monotonic) >= self.needed

    def _discontinuity(self, monotonic: float, database: datetime) -> str | None:
        if self._last is None:
            return None
        local_seconds = monotonic - self._last[0]
        difference = abs((database - self._last[1]).total_seconds() - local_seconds)
        if local_seconds > self.gap:
            return f"no heartbeat for {local_seconds:.1f} s"
        if difference > self.gap:
            return f"the clocks of the database and of this node moved apart by {difference:.1f} s"
        return None
