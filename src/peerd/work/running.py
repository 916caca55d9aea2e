"""Running tasks: claim into free places, run each attempt, write its outcome, and stop in good order.

The order of a stop: no new claims; what runs has its grace; then it is told to end, and what has *ended* is given back.
A thread that does not end keeps its task until the process is dead; then the agent gives it back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from peerd.domain.errors import DatabaseAway
from peerd.domain.outcome import Failed, Released
from peerd.domain.task import Task
from peerd.runtime.events import AttemptStarted, ClaimLost, ComponentFailed, Events
from peerd.runtime.faults import words
from peerd.runtime.ticker import Step, ThreadTicker, Ticker
from peerd.store.claim import Claimer
from peerd.store.database import Database, DatabaseThreads
from peerd.store.finish import Held
from peerd.store.outages import Outages
from peerd.store.touch import held_by
from peerd.work.attempt import Attempt, attempt_ended, seconds_until_finish
from peerd.work.claiming import Claiming
from peerd.work.context import Context
from peerd.work.execute import Because, Execution
from peerd.work.holdings import Holdings
from peerd.work.outcomes import OutcomeWriter
from peerd.work.pace import Pace
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
MOST_IN_A_CLAIM: Final = 500
"""Tasks."""
MOST_UNWRITTEN: Final = 2000
"""Outcomes that may wait to be written; then nothing more is claimed until the database has caught up."""
PATIENCE: Final = 0.03
"""Seconds that a task which was claimed ahead may wait for a place; then it goes back, for others to take."""


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
        self._ahead: deque[Attempt] = deque()
        self._running: dict[Held, Attempt] = {}
        self._unwritten: set[Attempt] = set()
        self._ended_count = 0
        self._quiet = asyncio.Event()
        self._claims_no_more = asyncio.Event()
        self._claims_no_more.set()  # until it runs
        self._changed = asyncio.Event()
        self._all_written = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(self._loop.time, self._settings.count)
        self._looks_behind: asyncio.TimerHandle | None = None
        self._alone = False
        outages = Outages(events, self._loop.time)
        self._threads = threads = DatabaseThreads(database)
        self._process_id = claimer.process_id
        self._writer = OutcomeWriter(threads, claimer.process_id, outages, lambda: len(self._running))
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
        """Tasks that this process holds: waiting for a place, running, or ended and not written yet."""
        return len(self._ahead) + len(self._running) + len(self._unwritten)

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
        await self._wait_until_ended(None)
        await self._wait_until_written()

    def quiet(self) -> None:
        """Claim no more; what was claimed ahead goes back."""
        self._quiet.set()
        self._changed.set()
        self._give_back_what_waits("its process was stopped")

    async def stop(self, grace: float) -> None:
        """Stop in good order. Returns when nothing runs, and all outcomes are written.

        A thread that goes on keeps it from returning: whoever calls this ends the process after a while, and what the
        thread held is given back when the process is dead. It may be called again, with less grace.

        Args:
            grace: seconds for what runs.
        """
        self.quiet()
        await self._wait_for_last_claim()
        await self._wait_until_ended(grace)
        for attempt in list(self._running.values()):
            attempt.tell_to_end(Because.STOPPING)
        await self._wait_until_ended(None)
        await self._wait_until_written()
        self._touching.stop()
        await asyncio.to_thread(self._touching.join, LAST_TOUCH_WITHIN)
        self._worker.state = State.STOP
        self._worker.stopped.set()

    # ---------------------------------------------------------------- claiming

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
            self._take(claimed)
            if not claimed:
                await self._wait_for_change(self._claiming.pause() if self._wanted() > 0 else None)

    async def _claim(self) -> list[Task]:
        wanted = self._wanted()
        return await self._claiming.claim(wanted, self.in_flight) if wanted > 0 else []

    def _longest_pause(self) -> float:
        return self.poll_every()

    def _wanted(self) -> int:
        """How many tasks to claim: for the free places, and as many ahead as will begin within milliseconds.

        While there is something in hand, nothing is claimed for the sake of a few.
        """
        if self._alone or len(self._unwritten) >= MOST_UNWRITTEN:
            return 0
        most = self._settings.count + self._pace.look_ahead()
        in_hand = len(self._ahead) + len(self._running)
        if self._ahead and 2 * in_hand > most:
            return 0
        return min(most - in_hand, MOST_IN_A_CLAIM)

    def _take(self, claimed: list[Task]) -> None:
        """Begin what was claimed, as far as there are places; the rest waits for them."""
        now = self._loop.time()
        self._ahead.extend(Attempt(task, now, self._written, self._unwritable) for task in claimed)
        if self._quiet.is_set():
            self._give_back_what_waits("its process was stopped")
        self._fill_places()
        if self._ahead and self._looks_behind is None:
            self._looks_behind = self._loop.call_later(PATIENCE, self._look_behind)

    def _look_behind(self) -> None:
        """What was claimed ahead should have begun by now; if not, others may be free for it."""
        self._looks_behind = None
        if not self._ahead:
            return
        patience = self._ahead[0].since + PATIENCE - self._loop.time()
        if patience > 0:
            self._looks_behind = self._loop.call_later(patience, self._look_behind)
        else:
            self._pace.forget()
            self._give_back_what_waits("it was claimed ahead, and did not begin in time")

    def _give_back_what_waits(self, reason: str) -> None:
        while self._ahead:
            attempt = self._ahead.popleft()
            attempt.outcome = Released(reason)
            self._write(attempt)

    # ---------------------------------------------------------------- attempts

    def _fill_places(self) -> None:
        while self._ahead and len(self._running) < self._settings.count:
            self._begin(self._ahead.popleft())

    def _begin(self, attempt: Attempt) -> None:
        if not self._running:
            self._pace.begin()
            self._worker.state = State.WORK
        task = attempt.task
        self._alone = task.crashes > 0
        attempt.execution = self._execution_of(task, attempt.held)
        self._running[attempt.held] = attempt
        attempt.living = self._loop.create_task(self._live(attempt, attempt.execution), name=f"task-{task.id}")

    def _execution_of(self, task: Task, held: Held) -> Execution:
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
        timeout = first_of(task.timeout, getattr(code, "timeout", None), self._settings.timeout)
        until_finish = seconds_until_finish(task)
        return Execution(code, ctx, timeout=timeout, until_finish=until_finish, events=self._events)

    async def _live(self, attempt: Attempt, execution: Execution) -> None:
        """One attempt: run it, free its place, have its outcome written."""
        task = attempt.task
        attempt.since = self._loop.time()
        self._events.emit(AttemptStarted(task_id=task.id, queue=task.queue, name=task.name, number=task.attempts + 1))
        try:
            attempt.outcome = await execution.outcome()
        except Exception as error:  # noqa: BLE001 - nothing of ours may raise here; see `_taint`
            self._taint(attempt, error)
        else:
            attempt.seconds = self._loop.time() - attempt.since
            if execution.because is Because.LOST:
                self._holdings.drop(attempt.held)
            else:
                self._write(attempt)
        self._free_place(attempt)

    def _free_place(self, attempt: Attempt) -> None:
        del self._running[attempt.held]
        self._ended_count += 1
        self._pace.ended()
        self._fill_places()
        if not self._running:
            self._pace.rest()
            self._settle()
        if self._wanted() > 0:
            self._changed.set()

    def _settle(self) -> None:
        """Notice that nothing runs, and that nothing waits to be written."""
        if not self._running:
            self._worker.state = State.IDLE
        if not self._unwritten:
            self._all_written.set()
            if not self._running:
                self._alone = False

    # ---------------------------------------------------------------- outcomes

    def _write(self, attempt: Attempt) -> None:
        self._unwritten.add(attempt)
        self._writer.add(attempt)

    def _written(self, attempt: Attempt, accepted: bool) -> None:  # noqa: FBT001 - a callback
        if accepted:
            self._events.emit(attempt_ended(attempt.task, attempt.outcome, attempt.seconds))
        else:
            self._tell_lost(attempt.task, "outcome")
        self._holdings.drop(attempt.held)
        self._forget(attempt)

    def _unwritable(self, attempt: Attempt, error: Exception) -> None:
        """The database refuses these very values: what is written instead is that the attempt failed for it."""
        if attempt.execution is None or attempt.is_unwritable:
            self._taint(attempt, error)
            self._forget(attempt)
            return
        attempt.is_unwritable = True
        text = f"its outcome could not be written: {words(error)}"
        attempt.outcome = Failed(error=text, retry_in=attempt.execution.delay())
        self._writer.add(attempt)

    def _forget(self, attempt: Attempt) -> None:
        self._unwritten.discard(attempt)
        if not self._unwritten:
            self._settle()
        if self._wanted() > 0:
            self._changed.set()

    def _taint(self, attempt: Attempt, error: Exception) -> None:
        """What must not happen has happened: a task was run and nothing can be said about it.

        Giving it back would let it run, and end so, again and again. So this process still holds it, and is tainted:
        when it has ended, the attempt counts as a crash, which is contained as every other one.
        """
        message = f"the outcome of task {attempt.task.id} could not be written"
        self._loop.call_exception_handler({"message": message, "exception": error})

    # ---------------------------------------------------------------- what is lost

    def _lost_by_touch(self, held: Held) -> None:
        """The touch thread says that a claim is not ours any more."""
        self._loop.call_soon_threadsafe(self._lose, held, "touch")

    def _lose(self, held: Held, noticed_at: str) -> None:
        """A claim is not ours any more: end its handler, or do not begin it, and write nothing.

        When the handler has ended, its last write is under way, and tells: a touch may have missed the row for that.
        """
        attempt = self._running.get(held)
        if attempt is not None and attempt.may_be_lost:
            attempt.tell_to_end(Because.LOST)
            self._tell_lost(attempt.task, noticed_at)
        for waiting in [one for one in self._ahead if one.held == held]:
            self._ahead.remove(waiting)
            self._holdings.drop(held)
            self._tell_lost(waiting.task, noticed_at)

    def _tell_lost(self, task: Task, noticed_at: str) -> None:
        self._events.emit(ClaimLost(task_id=task.id, queue=task.queue, name=task.name, noticed_at=noticed_at))

    # ---------------------------------------------------------------- waiting

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _wait_for_last_claim(self) -> None:
        """What it brings must be given back. A database that is away is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CLAIM_WITHIN):
                await self._claims_no_more.wait()

    async def _wait_until_ended(self, seconds: float | None) -> None:
        living = [attempt.living for attempt in self._running.values() if attempt.living is not None]
        if living:
            await asyncio.wait(living, timeout=seconds)

    async def _wait_until_written(self) -> None:
        while self._unwritten:
            self._all_written.clear()
            await self._all_written.wait()


def first_of(*values: float | None) -> float | None:
    """The first that is given.

    >>> first_of(None, 3.0, 5.0)
    3.0
    """
    return next((value for value in values if value is not None), None)
