"""Running tasks: claim into free places, run each attempt, write its outcome, and stop in good order.

The order of a stop: no new claims; what runs has its grace; then it is told to end, and what has *ended* is given back.
A thread that does not end keeps its task until the process is dead; then the agent gives it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from peerd.domain.errors import DatabaseAway
from peerd.domain.lifecycle import Event
from peerd.domain.outcome import Canceled, Done, Failed, Outcome, Released, Snoozed
from peerd.domain.task import Task
from peerd.domain.verdict import judge
from peerd.runtime.events import AttemptEnded, AttemptStarted, ClaimLost, ComponentFailed, Events
from peerd.runtime.faults import words
from peerd.runtime.ticker import Step, ThreadTicker, Ticker
from peerd.store.claim import Claimer
from peerd.store.database import Database, DatabaseThreads
from peerd.store.finish import Held
from peerd.store.outages import Outages
from peerd.store.touch import held_by
from peerd.work.claiming import Claiming
from peerd.work.context import Context
from peerd.work.execute import Because, Execution
from peerd.work.holdings import Holdings
from peerd.work.outcomes import OutcomeWriter
from peerd.work.settings import Settings
from peerd.work.task_worker import TaskWorker
from peerd.work.touching import Toucher
from peerd.work.worker import State

LAST_CLAIM_WITHIN: Final = 2.0
"""Seconds that a stop waits for the answer of the last claim."""
LAST_TOUCH_WITHIN: Final = 1.0
"""Seconds that a stop waits for the touch that runs."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds between two claims while claiming fails unexpectedly."""


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
        events: Events,
        enqueue: Callable[..., Awaitable[Any]] | None = None,
        client: Any = None,
        ticker: Callable[[Step], Ticker] = ThreadTicker,
    ) -> None:
        self._worker = worker
        self._settings: Settings = worker.settings
        self.poll_every: Callable[[], float] = lambda: self._settings.poll_every
        """Asked for the seconds between two looks into empty queues, at the most."""
        self._node = node
        self._events = events
        self._enqueue = enqueue
        self._client = client
        self._holdings = Holdings()
        self._running: dict[Held, tuple[Execution, asyncio.Task[None]]] = {}
        self._ended_count = 0
        self._quiet = asyncio.Event()
        self._claims_no_more = asyncio.Event()
        self._claims_no_more.set()  # until it runs
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._alone = False
        outages = Outages(events, self._loop.time)
        self._threads = threads = DatabaseThreads(database)
        self._process_id = claimer.process_id
        self._writer = OutcomeWriter(threads, claimer.process_id, outages, lambda: self.in_flight)
        self._claiming = Claiming(
            threads,
            claimer,
            self._holdings,
            outages,
            events,
            poll_every=self._longest_pause,
        )
        toucher = Toucher(
            database,
            claimer.process_id,
            self._holdings,
            update=self._settings.update,
            lost=self._lost_by_touch,
            outages=outages,
            events=events,
        )
        self._touching = ticker(toucher.round)

    @property
    def in_flight(self) -> int:
        """Tasks that run now."""
        return len(self._running)

    @property
    def ended_count(self) -> int:
        """Attempts that have ended since the start."""
        return self._ended_count

    def ring(self) -> None:
        """Somebody says that there is work: look at once."""
        self._changed.set()

    async def look_at(self, task_ids: frozenset[int]) -> None:
        """Somebody says that these tasks were taken from their holders: end those of ours that we do not hold any more.

        Args:
            task_ids: of this process or of others.
        """
        ours = [held for held in self._running if held.id in task_ids]
        if ours:
            with suppress(DatabaseAway):  # the next touch, or the outcome, will tell
                found = await self._threads.read(held_by, self._process_id)
                for held in ours:
                    if held not in found:
                        self._lose(held, "bell")

    async def run(self) -> None:
        """Claim and run until `quiet`."""
        self._claims_no_more.clear()
        self._touching.start()
        self._worker.state = State.IDLE
        try:
            await self._claim_until_quiet()
        finally:
            self._claims_no_more.set()
        await self._wait_until_idle(None)

    async def _claim_until_quiet(self) -> None:
        failing = FIRST_PAUSE
        while not self._quiet.is_set():
            self._changed.clear()  # before one looks: what changes from here on is not missed
            try:
                claimed = await self._claim()
                failing = FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - what runs must not be killed because nothing can be claimed
                self._events.emit(ComponentFailed(component="claim", error=words(error), again_in=failing))
                await self._wait_for_change(failing)
                failing = min(2 * failing, LONGEST_PAUSE)
                continue
            for task in claimed:
                self._start(task)
            if not claimed:
                await self._wait_for_change(self._claiming.pause() if self._free() > 0 else None)

    async def _claim(self) -> list[Task]:
        free = self._free()
        return await self._claiming.claim(free, len(self._running)) if free > 0 else []

    def _longest_pause(self) -> float:
        return self.poll_every()

    def _free(self) -> int:
        """Places for further tasks."""
        return 0 if self._alone else self._settings.count - len(self._running)

    def quiet(self) -> None:
        """Claim no more."""
        self._quiet.set()
        self._changed.set()

    async def stop(self, grace: float) -> None:
        """Stop in good order. Returns when nothing runs.

        A thread that goes on keeps it from returning: whoever calls this ends the process after a while, and what the
        thread held is given back when the process is dead. It may be called again, with less grace.

        Args:
            grace: seconds for what runs.
        """
        self.quiet()
        await self._wait_for_last_claim()
        await self._wait_until_idle(grace)
        for execution, _ in list(self._running.values()):
            execution.end(Because.STOPPING)
        await self._wait_until_idle(None)
        self._touching.stop()
        await asyncio.to_thread(self._touching.join, LAST_TOUCH_WITHIN)
        self._worker.state = State.STOP
        self._worker.stopped.set()

    def _start(self, task: Task) -> None:
        held = Held(task.id, task.lease)
        self._alone = task.crashes > 0
        ctx = Context(
            task,
            node=self._node,
            options=self._settings.options,
            report=lambda progress: self._holdings.report(held, progress),
            enqueue=self._enqueue,
            client=self._client,
            process=self._worker.entered,
        )
        code = self._worker.code_for(task)
        execution = Execution(
            code,
            ctx,
            timeout=first_of(task.timeout, getattr(code, "timeout", None), self._settings.timeout),
            until_finish=seconds_until_finish(task),
            events=self._events,
        )
        living = self._loop.create_task(self._live(held, task, execution), name=f"task-{task.id}")
        self._running[held] = (execution, living)
        self._worker.state = State.WORK
        if self._quiet.is_set():
            execution.end(Because.STOPPING)  # it came with the last claim: it is given back before it begins

    async def _live(self, held: Held, task: Task, execution: Execution) -> None:
        """One attempt: run it, write how it ended, free its place."""
        began = self._loop.time()
        self._events.emit(AttemptStarted(task_id=task.id, queue=task.queue, name=task.name, number=task.attempts + 1))
        try:
            outcome = await execution.outcome()
            if execution.because is not Because.LOST:
                outcome, accepted = await self._write(held, outcome, execution)
                if accepted:
                    self._events.emit(attempt_ended(task, outcome, self._loop.time() - began))
                else:
                    self._tell_lost(task, "outcome")
        except Exception as error:  # noqa: BLE001 - see below
            self._taint(held, error)
        else:
            self._holdings.drop(held)
        self._free_place(held)

    async def _write(self, held: Held, outcome: Outcome, execution: Execution) -> tuple[Outcome, bool]:
        """Write the outcome; where the database refuses these very values, that the attempt failed for it."""
        try:
            return outcome, await self._writer.write(held, outcome)
        except Exception as error:  # noqa: BLE001 - whatever the driver makes of it
            failed = Failed(error=f"its outcome could not be written: {words(error)}", retry_in=execution.delay())
            return failed, await self._writer.write(held, failed)

    def _taint(self, held: Held, error: Exception) -> None:
        """What must not happen has happened: a task was run and nothing can be said about it.

        Giving it back would let it run, and end so, again and again. So this process still holds it, and is tainted:
        when it has ended, the attempt counts as a crash, which is contained as every other one.
        """
        message = f"the outcome of task {held.id} could not be written"
        self._loop.call_exception_handler({"message": message, "exception": error})

    def _free_place(self, held: Held) -> None:
        self._running.pop(held, None)
        self._ended_count += 1
        if not self._running:
            self._alone = False
            self._worker.state = State.IDLE
        self._changed.set()

    def _lost_by_touch(self, held: Held) -> None:
        """The touch thread says that a claim is not ours any more."""
        self._loop.call_soon_threadsafe(self._lose, held, "touch")

    def _lose(self, held: Held, noticed_at: str) -> None:
        """A claim is not ours any more: end its handler, write nothing."""
        execution, _ = self._running.get(held, (None, None))
        # When it has ended, its last write is under way, and tells: a touch may have missed the row because of it.
        if execution is not None and not execution.ended and execution.because is not Because.LOST:
            execution.end(Because.LOST)
            self._tell_lost(execution.ctx.task, noticed_at)

    def _tell_lost(self, task: Task, noticed_at: str) -> None:
        self._events.emit(ClaimLost(task_id=task.id, queue=task.queue, name=task.name, noticed_at=noticed_at))

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _wait_for_last_claim(self) -> None:
        """What it brings must be given back. A database that is away is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CLAIM_WITHIN):
                await self._claims_no_more.wait()

    async def _wait_until_idle(self, seconds: float | None) -> None:
        living = [task for _, task in self._running.values()]
        if living:
            await asyncio.wait(living, timeout=seconds)


def first_of(*values: float | None) -> float | None:
    """The first that is given.

    >>> first_of(None, 3.0, 5.0)
    3.0
    """
    return next((value for value in values if value is not None), None)


def seconds_until_finish(task: Task) -> float | None:
    """How long a task may run that was just claimed: both times are the database's, so no node's clock matters."""
    if task.finish_at is None or task.worker_started_at is None:
        return None
    return (task.finish_at - task.worker_started_at).total_seconds()


def attempt_ended(task: Task, outcome: Outcome, seconds: float) -> AttemptEnded:
    """The fact of an attempt's end."""
    words: Mapping[str, Any]
    match outcome:
        case Done():
            words = {"outcome": "done"}
        case Failed():
            words = _of_a_failure(task, outcome, seconds)
        case Snoozed():
            words = {"outcome": "snoozed", "error": outcome.reason, "retry_in": outcome.after}
        case Canceled():
            words = {"outcome": "canceled", "error": outcome.reason}
        case Released():
            words = {"outcome": "released", "error": outcome.reason}
    return AttemptEnded(task_id=task.id, queue=task.queue, name=task.name, seconds=seconds, **words)


def _of_a_failure(task: Task, failed: Failed, seconds: float) -> Mapping[str, Any]:
    """How a failure was judged when it was written: after the last attempt there is no other, whatever was wished."""
    began = task.worker_started_at or datetime.min.replace(tzinfo=UTC)
    verdict = judge(task, failed, began + timedelta(seconds=seconds))
    retry_in = None if verdict.event is Event.DIE else failed.retry_in
    return {"outcome": verdict.label, "error": failed.error, "retry_in": retry_in}
