"""Running tasks: claim into free places, run each attempt, write its outcome, and stop in good order.

The order of a stop: no new claims; what runs has its grace; then it is told to end, and what has *ended* is given back.
A thread that does not end keeps its task until the process is dead; then the agent gives it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from peerd.domain.backoff import Backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.outcome import StuckAttempt
from peerd.domain.task import Task
from peerd.domain.token_bucket import TokenBucket
from peerd.runtime.concurrency.threads import PeriodicStep, PeriodicThread
from peerd.runtime.observability.events import ComponentFailed, EventBus, LimitedTaskEnded
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.claim.claimer import Claimer
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes.recording import ClaimId
from peerd.store.outcomes.touch import claims_of_process
from peerd.work.attempts.active_attempt import ActiveAttempt, build_stuck_attempt
from peerd.work.attempts.executor_slots import ExecutorSlots
from peerd.work.attempts.pending_outcomes import PendingOutcomes
from peerd.work.attempts.unknown_handlers import UnknownHandlerResolver
from peerd.work.claims.active_claims import ActiveClaims
from peerd.work.claims.task_fetcher import TaskFetcher
from peerd.work.claims.toucher import Toucher
from peerd.work.settings import EffectiveWorkerSettings
from peerd.work.task_worker import TaskWorker
from peerd.work.worker import WorkerState

LAST_CLAIM_TIMEOUT: Final = 2.0
"""Seconds that a stop waits for the answer of the last claim."""
LAST_TOUCH_TIMEOUT: Final = 1.0
"""Seconds that a stop waits for the touch that runs."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds between two claims while claiming fails unexpectedly."""
MAX_CLAIM_SIZE: Final = 500
"""Tasks."""
EMPTY_POLL_BUDGET: Final = (20, 5.0)
"""Looks because somebody rang, or said that tasks were taken: so many at once, and so many a second, as long as no task
is found. A ring need not be true, and one claim that finds a task lets as many follow as before."""
MAX_UNWRITTEN: Final = 2000
"""Outcomes that may wait to be written; then nothing more is claimed until the database has caught up."""


class Runner:
    """Runs the tasks of one TaskWorker in this process.

    Args:
        worker: the user's code, and its settings.
        database: of this process.
        claimer: who claims.
        node: the node's name.
        events: what happens.
        enqueue: for ``ctx.enqueue``.
        client: for ``ctx.client``.
        ticker: makes the thread that touches.
    """

    def __init__(
        self,
        worker: TaskWorker,
        database: Database,
        claimer: Claimer,
        *,
        node: str,
        events: EventBus,
        enqueue: Callable[..., Awaitable[Any]] | None = None,
        client: Any = None,
        ticker: Callable[[PeriodicStep], PeriodicThread] = PeriodicThread,
    ) -> None:
        self._worker = worker
        self._settings: EffectiveWorkerSettings = worker.settings
        self.poll_every: Callable[[], float] = lambda: self._settings.poll_every
        """Asked for the seconds between two looks into empty queues, at the most."""
        self.stuck: Callable[[StuckAttempt | None, str], object] = lambda _, __: None
        """Called with an attempt that only the end of this process ends, and with a sentence about it. From then on it
        is not waited for, and it is touched until `stop_touching`."""
        self._events = events
        self._quiet = asyncio.Event()
        self._claiming_stopped = asyncio.Event()
        self._claiming_stopped.set()  # until it runs
        self._wake_up = asyncio.Event()
        self._ring_budget = TokenBucket(*EMPTY_POLL_BUDGET)
        self._ring_timer: asyncio.TimerHandle | None = None
        self._lost_check_budget = TokenBucket(*EMPTY_POLL_BUDGET)
        self._claims_to_check: set[ClaimId] = set()
        self._loop = asyncio.get_running_loop()
        self._active_claims = ActiveClaims()
        self._process_id = claimer.process_id
        self._threads = threads = DatabaseThreads(database)
        outages = OutageTracker(events, self._loop.time)
        self._pending_outcomes = PendingOutcomes(
            threads,
            claimer.process_id,
            self._active_claims,
            outages,
            events,
            running=lambda: self._executor_slots.running_count,
            written=self._on_outcomes_written,
        )
        self._unknown_handlers = UnknownHandlerResolver(threads, outages, self._settings.unknown_after)
        self._executor_slots = ExecutorSlots(
            worker,
            self._active_claims,
            self._pending_outcomes,
            events,
            node=node,
            enqueue=enqueue,
            client=client,
            resolve_unknown_handler=self._unknown_handlers.resolve_unknown_handler,
            freed=self._wake_if_wanted,
        )
        self._executor_slots.stuck = self._report_stuck
        self._task_fetcher = TaskFetcher(
            threads,
            claimer,
            self._active_claims,
            outages,
            events,
            poll_every=self._max_poll_pause,
        )
        toucher = Toucher(
            database,
            claimer.process_id,
            self._active_claims,
            update=self._settings.update,
            lost=self._on_claim_lost_by_touch,
            outages=outages,
            events=events,
        )
        self._touch_ticker = ticker(toucher.round)

    @property
    def in_flight(self) -> int:
        """Tasks that this process holds: waiting for a place, running, or ended and not written yet."""
        return len(self._executor_slots) + len(self._pending_outcomes)

    @property
    def has_stuck(self) -> bool:
        """Whether something runs that only the end of this process ends."""
        return self._executor_slots.has_stuck

    @property
    def is_drained(self) -> bool:
        """Whether nothing is held, and nothing will be: after `quiet`, when all that ran has ended and is written."""
        return self._quiet.is_set() and self._claiming_stopped.is_set() and not len(self._active_claims)

    @property
    def ended_count(self) -> int:
        """Attempts that have ended since the start."""
        return self._executor_slots.ended_count

    def ring(self) -> None:
        """Somebody says that there is work: look at once, or soon if that has been in vain too often."""
        if self._ring_timer is not None:
            return
        rest = (
            self._ring_budget.take(self._loop.time()) + self._unknown_handlers.yield_delay()
            if self._wanted() > 0
            else 0.0
        )
        self._ring_timer = self._loop.call_later(rest, self._poll_now) if rest else None
        if not rest:
            self._poll_now()

    def _poll_now(self) -> None:
        self._ring_timer = None
        self._task_fetcher.on_ring()
        self._wake_up.set()

    async def check_claims(self, task_ids: frozenset[int]) -> None:
        """Somebody says that these tasks were taken from their holders: end those of ours that we do not hold any more.

        Args:
            task_ids: of this process or of others.
        """
        is_looked_for = bool(self._claims_to_check)
        self._claims_to_check |= {held for held in self._executor_slots.running() if held.id in task_ids}
        if self._claims_to_check and not is_looked_for:
            await asyncio.sleep(self._lost_check_budget.take(self._loop.time()))
            suspected, self._claims_to_check = self._claims_to_check, set()
            with suppress(DatabaseUnavailable):  # the next touch, or the outcome, will tell
                found = await self._threads.read(claims_of_process, self._process_id)
                for held in suspected:
                    if held not in found:
                        self._executor_slots.on_claim_lost(held, "bell")

    async def run(self) -> None:
        """Claim and run until `quiet`."""
        self._claiming_stopped.clear()
        self._touch_ticker.start()
        self._worker.state = WorkerState.IDLE
        try:
            await self._claim_until_quiet()
        finally:
            self._claiming_stopped.set()
        await self._executor_slots.wait_until_ended(None)
        await self._pending_outcomes.wait_until_written()

    def quiet(self) -> None:
        """Claim no more; what was claimed ahead goes back."""
        self._quiet.set()
        self._wake_up.set()
        self._executor_slots.close_intake("its process was stopped")

    async def stop(self, grace: float) -> None:
        """Stop in good order. Returns when nothing runs, and all outcomes are written.

        A thread that goes on keeps it from returning: whoever calls this ends the process after a while, and what the
        thread held is given back when the process is dead. It may be called again, with less grace.

        Args:
            grace: seconds for what runs.
        """
        self.quiet()
        await self._wait_for_last_claim()
        await self._executor_slots.wait_until_ended(grace)
        self._executor_slots.request_stop()
        await self._executor_slots.wait_until_ended(None)
        await self._pending_outcomes.wait_until_written()
        if not self.has_stuck:
            await self.stop_touching()
        self._worker.state = WorkerState.STOP
        self._worker.stopped.set()

    async def stop_touching(self) -> None:
        """Say no more of anything that it is held. `stop` does it, unless something is stuck and so held to the end."""
        self._touch_ticker.stop()
        await asyncio.to_thread(self._touch_ticker.join, LAST_TOUCH_TIMEOUT)

    async def _claim_until_quiet(self) -> None:
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        while not self._quiet.is_set():
            self._wake_up.clear()  # before one looks: what changes from here on is not missed
            try:
                claimed = await self._claim()
                pauses.reset()
            except Exception as error:  # noqa: BLE001 - what runs must not be killed because nothing can be claimed
                pause = pauses.next()
                self._events.emit(ComponentFailed(component="claim", error=describe_exception(error), again_in=pause))
                await self._wait_for_change(pause)
                continue
            self._executor_slots.take(claimed)
            if claimed:
                self._ring_budget.fill()
            else:
                await self._wait_for_change(self._task_fetcher.pause() if self._wanted() > 0 else None)

    async def _claim(self) -> list[Task]:
        wanted_count = self._wanted()
        return (
            await self._task_fetcher.claim(wanted_count, self.in_flight, self._executor_slots.free_count)
            if wanted_count > 0
            else []
        )

    def _wanted(self) -> int:
        """How many tasks to claim."""
        if len(self._pending_outcomes) >= MAX_UNWRITTEN or (self._executor_slots.is_quarantined and self.in_flight):
            return 0
        return min(self._executor_slots.wanted_count(), MAX_CLAIM_SIZE)

    def _wake_if_wanted(self) -> None:
        """There is less in hand: perhaps it is time to claim."""
        if not self._wake_up.is_set() and self._wanted() > 0:
            self._wake_up.set()

    def _on_outcomes_written(self, batch: Sequence[ActiveAttempt]) -> None:
        """Tasks are not held any more. Others of their keys may start now, here or elsewhere."""
        freed = self._task_fetcher.queues_freed_by(attempt.task for attempt in batch)
        if freed:
            self._task_fetcher.on_capacity_change()
            for queue in freed:
                self._events.emit(LimitedTaskEnded(queue=queue))
        self._wake_if_wanted()

    def _report_stuck(self, attempt: ActiveAttempt) -> None:
        task, execution = attempt.task, attempt.execution
        assert execution is not None
        what = f"{task.queue}/{task.name}" if task.name else task.queue
        sentence = f"task {task.id} ({what}) {execution.hard_limit_text}"
        self.stuck(build_stuck_attempt(attempt, self._loop.time() - attempt.since), sentence)

    def _max_poll_pause(self) -> float:
        return self.poll_every()

    def _on_claim_lost_by_touch(self, held: ClaimId) -> None:
        """The touch thread says that a claim is not ours any more."""
        self._loop.call_soon_threadsafe(self._executor_slots.on_claim_lost, held, "touch")

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()

    async def _wait_for_last_claim(self) -> None:
        """What it brings must be given back. A database that is away is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CLAIM_TIMEOUT):
                await self._claiming_stopped.wait()
