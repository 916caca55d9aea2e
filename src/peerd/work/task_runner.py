"""The runner of a process: it claims tasks into free slots, runs each attempt, writes its outcome, and stops in order.

A stop makes no new claims, gives running attempts their grace, ends them, and releases those that have *ended*.
A thread that does not end keeps its task until the process is dead; then the agent releases it.

`OutcomeWriter` and `ExecutorSlots` call back into the runner, because each end of an attempt may make a claim worth
while, and only the runner knows the tasks in hand of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.outcome import StuckAttempt
from peerd.domain.pacing import Backoff, TokenBucket
from peerd.domain.task import Task
from peerd.runtime.concurrency import PeriodicStep, PeriodicThread
from peerd.runtime.metrics.registry import Sample
from peerd.runtime.observability.events import ComponentFailed, EventBus, LimitedTaskEnded
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import ClaimId, claims_of_process
from peerd.store.take.claimer import Claimer
from peerd.work.active_attempt import ActiveAttempt, build_stuck_attempt
from peerd.work.active_claims import ActiveClaims, Toucher
from peerd.work.attempt_log import LineCollector
from peerd.work.attempt_outcome import UnknownHandlerResolver
from peerd.work.executor_slots import ExecutorSlots
from peerd.work.outcome_writer import OutcomeWriter
from peerd.work.task_fetcher import TaskFetcher
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
"""Polls after rings, and after messages that tasks were taken: this many at once, and this many a second, until a task
is found. A ring need not be true, and one claim that finds a task lets as many follow as before."""
MAX_UNWRITTEN: Final = 2000
"""Outcomes that may wait to be written; with more, nothing is claimed until the database has caught up."""


class Runner:
    """Runs the tasks of one TaskWorker in this process.

    `ticker` makes the thread that touches its claims; `lines` takes what the handlers log.
    """

    def __init__(
        self,
        worker: TaskWorker,
        database: Database,
        claimer: Claimer,
        *,
        node: str,
        events: EventBus,
        client: Any = None,
        ticker: Callable[[PeriodicStep], PeriodicThread] = PeriodicThread,
        lines: LineCollector | None = None,
    ) -> None:
        self._worker = worker
        settings = worker.settings
        self.poll_every: Callable[[], float] = lambda: settings.poll_every
        """Returns the seconds between two polls of empty queues, at the most."""
        self.stuck: Callable[[StuckAttempt | None, str], object] = lambda _, __: None
        """Called with an attempt that only the end of this process ends, and with a sentence about it. It is not waited
        for any more, and it is touched until `stop_touching`."""
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
        self._active_claims = claims = ActiveClaims()
        self._process_id = claimer.process_id
        self._threads = threads = DatabaseThreads(database)
        outages = OutageTracker(events, self._loop.time)
        self._outcomes = OutcomeWriter(
            threads, claimer.process_id, claims, outages, events, written=self._on_outcomes_written
        )
        self._unknown_handlers = UnknownHandlerResolver(threads, outages, settings.unknown_after)
        self.executor_slots = ExecutorSlots(
            worker,
            claims,
            self._outcomes,
            events,
            node=node,
            client=client,
            resolve_unknown_handler=self._unknown_handlers.resolve_unknown_handler,
            freed=self._wake_if_wanted,
            stuck=self._report_stuck,
            lines=lines,
        )
        self._task_fetcher = TaskFetcher(
            threads,
            claimer,
            claims,
            outages,
            events,
            poll_every=lambda: self.poll_every(),  # noqa: PLW0108 - the attribute is set later
        )
        toucher = Toucher(
            database,
            claimer.process_id,
            claims,
            update=settings.update,
            lost=lambda held: self._loop.call_soon_threadsafe(self.executor_slots.on_claim_lost, held, "touch"),
            outages=outages,
            events=events,
        )
        self._touch_ticker = ticker(toucher.round)

    @property
    def in_flight(self) -> int:
        """Tasks that this process holds: prefetched, running, or ended and not written yet."""
        return len(self.executor_slots) + len(self._outcomes)

    @property
    def is_drained(self) -> bool:
        """Whether, after `quiet`, all attempts have ended and all outcomes are written."""
        return self._quiet.is_set() and self._claiming_stopped.is_set() and not len(self._active_claims)

    def ring(self) -> None:
        """The doorbell rang: poll at once, or later if too many polls after rings have found nothing."""
        if self._ring_timer is not None:
            return
        if self._wanted() > 0:
            delay = self._ring_budget.take(self._loop.time()) + self._unknown_handlers.yield_delay()
            if delay:
                self._ring_timer = self._loop.call_later(delay, self._poll_now)
                return
        self._poll_now()

    def _poll_now(self) -> None:
        self._ring_timer = None
        self._task_fetcher.on_ring()
        self._wake_up.set()

    async def check_claims(self, task_ids: frozenset[int]) -> None:
        """Stop the handlers of those of these tasks, of any process, that run here and are not held any more."""
        is_check_pending = bool(self._claims_to_check)
        self._claims_to_check |= {held for held in self.executor_slots.running() if held.id in task_ids}
        if not self._claims_to_check or is_check_pending:
            return
        await asyncio.sleep(self._lost_check_budget.take(self._loop.time()))
        suspected, self._claims_to_check = self._claims_to_check, set()
        with suppress(DatabaseUnavailable):  # the next touch, or the outcome, shows it
            found = await self._threads.read(claims_of_process, self._process_id)
            for held in suspected:
                if held not in found:
                    self.executor_slots.on_claim_lost(held, "doorbell")

    async def run(self) -> None:
        """Claim and run until `quiet`."""
        self._claiming_stopped.clear()
        self._touch_ticker.start()
        self._worker.state = WorkerState.IDLE
        try:
            await self._claim_until_quiet()
        finally:
            self._claiming_stopped.set()
        await self.executor_slots.wait_until_ended(None)
        await self._outcomes.wait_until_written()

    def quiet(self) -> None:
        """Claim no more, and release prefetched tasks."""
        self._quiet.set()
        self._wake_up.set()
        self.executor_slots.close_intake("its process was stopped")

    async def stop(self, grace: float) -> None:
        """Stop. Returns when no attempt runs, and all outcomes are written.

        A thread that does not end keeps it from returning: the caller ends the process after a while, and the thread's
        task is released when the process is dead. It may be called again, with less grace.
        """
        self.quiet()
        with suppress(TimeoutError):  # what the last claim wins is to be released; an outage is not waited for
            async with asyncio.timeout(LAST_CLAIM_TIMEOUT):
                await self._claiming_stopped.wait()
        await self.executor_slots.wait_until_ended(grace)
        self.executor_slots.request_stop()
        await self.executor_slots.wait_until_ended(None)
        await self._outcomes.wait_until_written()
        if not self.executor_slots.has_stuck:
            await self.stop_touching()
        self._worker.state = WorkerState.STOP
        self._worker.stopped.set()

    async def stop_touching(self) -> None:
        """End the touch thread. `stop` does it, unless an attempt is stuck, whose task is held to the end."""
        self._touch_ticker.stop()
        await asyncio.to_thread(self._touch_ticker.join, LAST_TOUCH_TIMEOUT)

    async def _claim_until_quiet(self) -> None:
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        while not self._quiet.is_set():
            self._wake_up.clear()  # before the claim, so that a change during it is not missed
            try:
                claimed = await self._claim(self._wanted())
                pauses.reset()
            except Exception as error:  # noqa: BLE001 - what runs must not be killed because nothing can be claimed
                pause = pauses.next()
                self._events.emit(ComponentFailed(component="claim", error=describe_exception(error), again_in=pause))
                await self._wait_for_change(pause)
                continue
            self.executor_slots.take(claimed)
            if claimed:
                self._ring_budget.fill()
            else:
                await self._wait_for_change(self._task_fetcher.pause() if self._wanted() > 0 else None)

    async def _claim(self, wanted: int) -> list[Task]:
        if wanted <= 0:
            return []
        return await self._task_fetcher.claim(wanted, self.in_flight, self.executor_slots.free_count)

    def _wanted(self) -> int:
        if len(self._outcomes) >= MAX_UNWRITTEN or (self.executor_slots.is_quarantined and self.in_flight):
            return 0
        return min(self.executor_slots.wanted_count(), MAX_CLAIM_SIZE)

    def _wake_if_wanted(self) -> None:
        if not self._wake_up.is_set() and self._wanted() > 0:
            self._wake_up.set()

    def _on_outcomes_written(self, batch: Sequence[ActiveAttempt]) -> None:
        """Tasks are not held any more: others with their limit keys may start now, here or elsewhere."""
        for queue in self._task_fetcher.on_ended(attempt.task for attempt in batch):
            self._events.emit(LimitedTaskEnded(queue=queue))
        self._wake_if_wanted()

    def _report_stuck(self, attempt: ActiveAttempt) -> None:
        task, execution = attempt.task, attempt.execution
        assert execution is not None
        handler = f"{task.queue}/{task.name}" if task.name else task.queue
        sentence = f"task {task.id} ({handler}) {execution.hard_limit_text}"
        self.stuck(build_stuck_attempt(attempt, self._loop.time() - attempt.since), sentence)

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()

    def samples(self, kind: str) -> Iterable[Sample]:
        """Executor slots and outcomes, for the metrics of a process of this kind."""
        busy = len(self.executor_slots.running())
        yield Sample("peerd_slots", (kind, "busy"), busy)
        yield Sample("peerd_slots", (kind, "free"), max(self._worker.settings.count - busy, 0))
        yield Sample("peerd_unwritten_outcomes", (kind,), len(self._outcomes))
