"""The places of a process: what runs in them, and what was claimed ahead and waits for one.

A place is free again when its handler has ended; what becomes of the outcome is `peerd.work.attempts.pending_outcomes`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from peerd.domain.outcome import Released
from peerd.domain.task import Task
from peerd.runtime.observability.events import AttemptStarted, Events
from peerd.store.outcomes.recording import Held
from peerd.work.attempts.active_attempt import Attempt, claim_lost, seconds_until_finish
from peerd.work.attempts.attempt_execution import AskOthers, Callbacks, Execution
from peerd.work.attempts.handler_adapter import timeout_of
from peerd.work.attempts.pending_outcomes import Endings
from peerd.work.attempts.time_limits import Because, TimeLimits
from peerd.work.claims.active_claims import Holdings
from peerd.work.claims.prefetch import Pace
from peerd.work.context import Context
from peerd.work.settings import Settings
from peerd.work.task_worker import TaskWorker
from peerd.work.worker import State

PATIENCE: Final = 0.03
"""Seconds that a task which was claimed ahead may wait for a place; then it goes back, for others to take."""


class Places:
    """As many places as the worker's ``count``.

    Args:
        worker: the user's code, and its settings.
        holdings: what is held, and what is lost of it.
        endings: takes what has ended.
        events: what happens.
        node: the node's name.
        enqueue: for ``ctx.enqueue``.
        client: for ``ctx.client``.
        ask_others: see `Callbacks`.
        freed: called when a place is free, and there is less in hand than it takes to claim nothing.
    """

    def __init__(  # noqa: PLR0913 - what a place needs
        self,
        worker: TaskWorker,
        holdings: Holdings,
        endings: Endings,
        events: Events,
        *,
        node: str,
        enqueue: Callable[..., Awaitable[Any]] | None,
        client: Any,
        ask_others: AskOthers,
        freed: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._settings: Settings = worker.settings
        self._holdings = holdings
        self._endings = endings
        self._events = events
        self._node = node
        self._enqueue = enqueue
        self._client = client
        self._usual_limits = TimeLimits(
            self._settings.timeout, None, self._settings.timeout_grace, self._settings.hook_timeout
        )
        self._callbacks = Callbacks(events, self._tell_stuck, ask_others)
        self._freed = freed
        self.stuck: Callable[[Attempt], object] = lambda _: None
        """Called with an attempt that has reached the hard limit of its time: only the end of the process ends it."""
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(self._loop.time, self._settings.count)
        self._ahead: deque[Attempt] = deque()
        self._running: dict[Held, Attempt] = {}
        self._looks_behind: asyncio.TimerHandle | None = None
        self._plenty = 0
        """While there is more in hand, and some of it waits, nothing is claimed; as far as it was last known."""
        self._declines: str | None = None
        """Why nothing more is begun."""
        self.ended_count = 0
        """Attempts that have ended since the start."""
        self.is_alone = False
        """Whether the latest one has crashed a process, and so must run alone."""

    def __len__(self) -> int:
        """Tasks that wait for a place or run."""
        return len(self._ahead) + len(self._running)

    @property
    def free(self) -> int:
        """How many places there are for which nothing waits."""
        return max(self._settings.count - len(self), 0)

    @property
    def has_stuck(self) -> bool:
        """Whether something runs that only the end of the process ends."""
        return any(attempt.is_stuck for attempt in self._running.values())

    @property
    def running_count(self) -> int:
        """How many attempts run."""
        return len(self._running)

    def running(self) -> list[Held]:
        """What runs."""
        return list(self._running)

    def wanted(self) -> int:
        """How many tasks to claim: for the free places, and as many ahead as will begin within milliseconds.

        While there is something in hand, nothing is claimed for the sake of a few.
        """
        most = self._settings.count + self._pace.look_ahead()
        in_hand = len(self)
        self._plenty = most // 2
        return 0 if self._ahead and in_hand > self._plenty else most - in_hand

    def take(self, claimed: list[Task]) -> None:
        """Begin what was claimed, as far as there are places; the rest waits for them."""
        now = self._loop.time()
        self._ahead.extend([Attempt(task, now) for task in claimed])
        if self._declines is not None:
            self._give_back_what_waits(self._declines)
        self._fill()
        if self._ahead and self._looks_behind is None:
            self._looks_behind = self._loop.call_later(PATIENCE, self._look_behind)

    def begin_no_more(self, reason: str) -> None:
        """From now on what waits, and what is brought, goes back.

        Args:
            reason: for whoever looks.
        """
        self._declines = reason
        self._give_back_what_waits(reason)

    def lose(self, held: Held, noticed_at: str) -> None:
        """A claim is not ours any more: end its handler, or do not begin it, and write nothing.

        When the handler has ended, its last write is under way, and tells: a touch may have missed the row for that.
        """
        attempt = self._running.get(held)
        if attempt is not None and attempt.may_be_lost:
            attempt.tell_to_end(Because.LOST)
            self._events.emit(claim_lost(attempt.task, noticed_at))
        for waiting in [one for one in self._ahead if one.held == held]:
            self._ahead.remove(waiting)
            self._holdings.drop([held])
            self._events.emit(claim_lost(waiting.task, noticed_at))

    def tell_to_end(self) -> None:
        """The process stops: tell all that runs to end."""
        for attempt in list(self._running.values()):
            attempt.tell_to_end(Because.STOPPING)

    async def wait_until_ended(self, seconds: float | None) -> None:
        """Wait for what runs. What is stuck is not waited for: it ends with the process.

        Args:
            seconds: at the most; None is without end.
        """
        ending = [attempt for attempt in self._running.values() if not attempt.is_stuck]
        living = [attempt.living for attempt in ending if attempt.living is not None]
        if living:
            await asyncio.wait(living, timeout=seconds)

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
            self._endings.add(attempt)

    def _fill(self) -> None:
        while self._ahead and len(self._running) < self._settings.count:
            self._begin(self._ahead.popleft())

    def _begin(self, attempt: Attempt) -> None:
        if not self._running:
            self._pace.begin()
            self._worker.state = State.WORK
        task = attempt.task
        self.is_alone = task.crashes > 0
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
        limits = self._usual_limits
        timeout, until_finish = timeout_of(task, code, self._settings), seconds_until_finish(task)
        if timeout != limits.timeout or until_finish is not None:
            limits = limits._replace(timeout=timeout, until_finish=until_finish)
        return Execution(code, ctx, limits, self._callbacks)

    def _tell_stuck(self, execution: Execution) -> None:
        """Find its attempt and tell. An execution that knew its attempt would be a circle, which only the collector of
        garbage takes apart: a sixth of all processor time where tasks are short.
        """
        self.stuck(next(attempt for attempt in self._running.values() if attempt.execution is execution))

    async def _live(self, attempt: Attempt, execution: Execution) -> None:
        """One attempt: run it, have its outcome written, free its place."""
        task = attempt.task
        attempt.since = self._loop.time()
        if self._events.are_heard(AttemptStarted):
            number = task.attempts + 1
            self._events.emit(AttemptStarted(task_id=task.id, queue=task.queue, name=task.name, number=number))
        try:
            attempt.outcome = await execution.outcome(attempt.living)
        except Exception as error:  # noqa: BLE001 - nothing of ours may raise here; see `Endings.taint`
            self._endings.taint(attempt, error)
        else:
            attempt.seconds = self._loop.time() - attempt.since
            if execution.because is Because.LOST:
                self._holdings.drop([attempt.held])
            else:
                self._endings.add(attempt)
        self._free(attempt)

    def _free(self, attempt: Attempt) -> None:
        del self._running[attempt.held]
        self.ended_count += 1
        self._pace.ended()
        self._fill()
        if not self._running:
            self._pace.rest()
            self._worker.state = State.IDLE
        if not self._ahead or len(self._ahead) + len(self._running) <= self._plenty:
            self._freed()
