"""Running tasks: claim into free places, run each attempt, write its outcome, and stop in good order.

The order of a stop: no new claims; what runs has its grace; then it is told to end, and what has *ended* is given back.
A thread that does not end keeps its task until the process is dead; then the agent gives it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from peerd.domain.errors import DatabaseAway
from peerd.domain.stuck_attempt import StuckAttempt
from peerd.domain.task import Task
from peerd.domain.token_bucket import TokenBucket
from peerd.runtime.concurrency.periodic_thread import Step, ThreadTicker, Ticker
from peerd.runtime.observability.events import ComponentFailed, Events, TurnEnded
from peerd.runtime.process.uncaught_exceptions import words
from peerd.store.claim.claimer import Claimer
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import Outages
from peerd.store.outcomes.recording import Held
from peerd.store.outcomes.touch import held_by
from peerd.work.attempts.active_attempt import Attempt, stuck_attempt
from peerd.work.attempts.executor_slots import Places
from peerd.work.attempts.pending_outcomes import Endings
from peerd.work.attempts.unknown_handlers import NotServedHere
from peerd.work.claims.active_claims import Holdings
from peerd.work.claims.task_fetcher import Claiming
from peerd.work.claims.toucher import Toucher
from peerd.work.settings import Settings
from peerd.work.task_worker import TaskWorker
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
LOOKS_IN_VAIN: Final = (20, 5.0)
"""Looks because somebody rang, or said that tasks were taken: so many at once, and so many a second, as long as no task
is found. A ring need not be true, and one claim that finds a task lets as many follow as before."""
MOST_UNWRITTEN: Final = 2000
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
        events: Events,
        enqueue: Callable[..., Awaitable[Any]] | None = None,
        client: Any = None,
        ticker: Callable[[Step], Ticker] = ThreadTicker,
    ) -> None:
        self._worker = worker
        self._settings: Settings = worker.settings
        self.poll_every: Callable[[], float] = lambda: self._settings.poll_every
        """Asked for the seconds between two looks into empty queues, at the most."""
        self.stuck: Callable[[StuckAttempt | None, str], object] = lambda _, __: None
        """Called with an attempt that only the end of this process ends, and with a sentence about it. From then on it
        is not waited for, and it is touched until `stop_touching`."""
        self._events = events
        self._quiet = asyncio.Event()
        self._claims_no_more = asyncio.Event()
        self._claims_no_more.set()  # until it runs
        self._changed = asyncio.Event()
        self._rings = TokenBucket(*LOOKS_IN_VAIN)
        self._ringing: asyncio.TimerHandle | None = None
        self._thefts = TokenBucket(*LOOKS_IN_VAIN)
        self._suspected: set[Held] = set()
        self._loop = asyncio.get_running_loop()
        self._holdings = Holdings()
        self._process_id = claimer.process_id
        self._threads = threads = DatabaseThreads(database)
        outages = Outages(events, self._loop.time)
        self._endings = Endings(
            threads,
            claimer.process_id,
            self._holdings,
            outages,
            events,
            running=lambda: self._places.running_count,
            written=self._ended,
        )
        self._not_served = NotServedHere(threads, outages, self._settings.unknown_after)
        self._places = Places(
            worker,
            self._holdings,
            self._endings,
            events,
            node=node,
            enqueue=enqueue,
            client=client,
            ask_others=self._not_served.ask_others,
            freed=self._look_again,
        )
        self._places.stuck = self._tell_stuck
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
        return len(self._places) + len(self._endings)

    @property
    def has_stuck(self) -> bool:
        """Whether something runs that only the end of this process ends."""
        return self._places.has_stuck

    @property
    def is_drained(self) -> bool:
        """Whether nothing is held, and nothing will be: after `quiet`, when all that ran has ended and is written."""
        return self._quiet.is_set() and self._claims_no_more.is_set() and not len(self._holdings)

    @property
    def ended_count(self) -> int:
        """Attempts that have ended since the start."""
        return self._places.ended_count

    def ring(self) -> None:
        """Somebody says that there is work: look at once, or soon if that has been in vain too often."""
        if self._ringing is not None:
            return
        rest = self._rings.take(self._loop.time()) + self._not_served.makes_way_for() if self._wanted() > 0 else 0.0
        self._ringing = self._loop.call_later(rest, self._look_for_work) if rest else None
        if not rest:
            self._look_for_work()

    def _look_for_work(self) -> None:
        self._ringing = None
        self._claiming.was_rung()
        self._changed.set()

    async def look_at(self, task_ids: frozenset[int]) -> None:
        """Somebody says that these tasks were taken from their holders: end those of ours that we do not hold any more.

        Args:
            task_ids: of this process or of others.
        """
        is_looked_for = bool(self._suspected)
        self._suspected |= {held for held in self._places.running() if held.id in task_ids}
        if self._suspected and not is_looked_for:
            await asyncio.sleep(self._thefts.take(self._loop.time()))
            suspected, self._suspected = self._suspected, set()
            with suppress(DatabaseAway):  # the next touch, or the outcome, will tell
                found = await self._threads.read(held_by, self._process_id)
                for held in suspected:
                    if held not in found:
                        self._places.lose(held, "bell")

    async def run(self) -> None:
        """Claim and run until `quiet`."""
        self._claims_no_more.clear()
        self._touching.start()
        self._worker.state = State.IDLE
        try:
            await self._claim_until_quiet()
        finally:
            self._claims_no_more.set()
        await self._places.wait_until_ended(None)
        await self._endings.wait_until_written()

    def quiet(self) -> None:
        """Claim no more; what was claimed ahead goes back."""
        self._quiet.set()
        self._changed.set()
        self._places.begin_no_more("its process was stopped")

    async def stop(self, grace: float) -> None:
        """Stop in good order. Returns when nothing runs, and all outcomes are written.

        A thread that goes on keeps it from returning: whoever calls this ends the process after a while, and what the
        thread held is given back when the process is dead. It may be called again, with less grace.

        Args:
            grace: seconds for what runs.
        """
        self.quiet()
        await self._wait_for_last_claim()
        await self._places.wait_until_ended(grace)
        self._places.tell_to_end()
        await self._places.wait_until_ended(None)
        await self._endings.wait_until_written()
        if not self.has_stuck:
            await self.stop_touching()
        self._worker.state = State.STOP
        self._worker.stopped.set()

    async def stop_touching(self) -> None:
        """Say no more of anything that it is held. `stop` does it, unless something is stuck and so held to the end."""
        self._touching.stop()
        await asyncio.to_thread(self._touching.join, LAST_TOUCH_WITHIN)

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
            self._places.take(claimed)
            if claimed:
                self._rings.fill()
            else:
                await self._wait_for_change(self._claiming.pause() if self._wanted() > 0 else None)

    async def _claim(self) -> list[Task]:
        wanted = self._wanted()
        return await self._claiming.claim(wanted, self.in_flight, self._places.free) if wanted > 0 else []

    def _wanted(self) -> int:
        """How many tasks to claim."""
        if len(self._endings) >= MOST_UNWRITTEN or (self._places.is_alone and self.in_flight):
            return 0
        return min(self._places.wanted(), MOST_IN_A_CLAIM)

    def _look_again(self) -> None:
        """There is less in hand: perhaps it is time to claim."""
        if not self._changed.is_set() and self._wanted() > 0:
            self._changed.set()

    def _ended(self, batch: Sequence[Attempt]) -> None:
        """Tasks are not held any more. Others of their keys may start now, here or elsewhere."""
        freed = self._claiming.freed_by(attempt.task for attempt in batch)
        if freed:
            self._claiming.may_have_changed()
            for queue in freed:
                self._events.emit(TurnEnded(queue=queue))
        self._look_again()

    def _tell_stuck(self, attempt: Attempt) -> None:
        task, execution = attempt.task, attempt.execution
        assert execution is not None
        what = f"{task.queue}/{task.name}" if task.name else task.queue
        sentence = f"task {task.id} ({what}) {execution.hard_limit}"
        self.stuck(stuck_attempt(attempt, self._loop.time() - attempt.since), sentence)

    def _longest_pause(self) -> float:
        return self.poll_every()

    def _lost_by_touch(self, held: Held) -> None:
        """The touch thread says that a claim is not ours any more."""
        self._loop.call_soon_threadsafe(self._places.lose, held, "touch")

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _wait_for_last_claim(self) -> None:
        """What it brings must be given back. A database that is away is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CLAIM_WITHIN):
                await self._claims_no_more.wait()
