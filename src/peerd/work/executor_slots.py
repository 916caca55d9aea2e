"""The executor slots of a process: what runs in them, and what was prefetched for them.

A slot is free when its handler has ended. The outcome is then the business of `peerd.work.outcome_writer`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from peerd.domain.outcome import Released
from peerd.domain.task import Task
from peerd.domain.task_stack import CallStack, StackAnswer, bounded
from peerd.runtime.concurrency import thread_started_by
from peerd.runtime.observability.call_stacks import is_idle_loop, stack_of_thread, stacks_of_task
from peerd.runtime.observability.events import AttemptStarted, EventBus
from peerd.store.outcomes import ClaimId
from peerd.work.active_attempt import ActiveAttempt, claim_lost_event, seconds_until_finish
from peerd.work.active_claims import ActiveClaims
from peerd.work.attempt_execution import AttemptCallbacks, Execution, ResolveUnknownHandler
from peerd.work.attempt_log import AttemptLog, LineCollector
from peerd.work.attempt_outcome import StopReason, TimeLimits
from peerd.work.context import Context
from peerd.work.outcome_writer import OutcomeWriter
from peerd.work.remote_stacks import remote_stacks_of
from peerd.work.task_worker import TaskWorker, timeout_of
from peerd.work.worker import WorkerState

MAX_PREFETCH_WAIT: Final = 0.03
"""Seconds that a prefetched task may wait for a slot; then it is released, for other processes to claim."""
HORIZON: Final = 0.01
"""Seconds within which a prefetched task should start."""
MAX_MEAN_SECONDS: Final = 0.02
"""Seconds of an attempt on average. Longer ones that started together end together, and what was prefetched because
their mean is short would wait for all of them."""
MAX_PREFETCH: Final = 1000
"""Tasks: what a hundred thousand a second would start within the horizon. While half of it is at hand the next claim is
on its way: with 500, drains waited for claims, and were slower by 11 % on MariaDB, 14 on PostgreSQL and 4 on SQLite."""
MIN_MEASUREMENT: Final = (0.002, 20)
"""Seconds of work and attempts after which a measurement counts: a clock's tick more or less must not matter."""


class ExecutorSlots:
    """The slots of a worker, as many as its ``count``.

    `freed` is called when a slot is free and a claim is worth while; `stuck` with an attempt at the hard limit of its
    time, which only the end of the process ends. `lines` takes what the handlers log; None: it is not kept.
    """

    def __init__(  # noqa: PLR0913 - the parts of a Runner
        self,
        worker: TaskWorker,
        active_claims: ActiveClaims,
        outcomes: OutcomeWriter,
        events: EventBus,
        *,
        node: str,
        client: Any,
        resolve_unknown_handler: ResolveUnknownHandler,
        freed: Callable[[], object],
        stuck: Callable[[ActiveAttempt], object],
        lines: LineCollector | None = None,
    ) -> None:
        self._worker = worker
        self._settings = settings = worker.settings
        self._active_claims = active_claims
        self._outcomes = outcomes
        self._events = events
        self._node = node
        self._client = client
        self._enqueue = None if client is None else client.aio.enqueue
        self._default_limits = TimeLimits(settings.timeout, None, settings.timeout_grace, settings.hook_timeout)
        tracer = None if worker.current_process is None else worker.current_process.tracer
        self._callbacks = AttemptCallbacks(events, self._report_stuck, resolve_unknown_handler, tracer)
        self._on_slot_freed = freed
        self._on_stuck = stuck
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._prefetch = PrefetchEstimate(self._loop.time, settings.count)
        self._prefetched: deque[ActiveAttempt] = deque()
        self._running: dict[ClaimId, ActiveAttempt] = {}
        self._prefetch_timer: asyncio.TimerHandle | None = None
        self._refill_below = 0
        """Nothing is claimed while tasks are prefetched and more than this many are in hand."""
        self._closed_reason: str | None = None
        """Why no further task is started; None while the intake is open."""
        self.ended_count = 0
        """Attempts that have ended since the start."""
        self.is_quarantined = False
        """Whether the attempt that was started last has crashed a process, and so must run alone."""

    def __len__(self) -> int:
        """Tasks that are prefetched or run."""
        return len(self._prefetched) + len(self._running)

    @property
    def free_count(self) -> int:
        """Slots for which no task is at hand."""
        return max(self._settings.count - len(self), 0)

    @property
    def has_stuck(self) -> bool:
        return any(attempt.is_stuck for attempt in self._running.values())

    def running(self) -> list[ClaimId]:
        return list(self._running)

    def find_running(self, task_id: int) -> ActiveAttempt | None:
        """The running attempt of a task; from any thread."""
        attempts = list(self._running.values())  # one step of the interpreter, so that no other thread comes between
        return next((attempt for attempt in attempts if attempt.task.id == task_id), None)

    def running_since(self) -> list[tuple[str, str, float]]:
        """Queue, name and start of each attempt that runs, by the event loop's time. Any thread may call it."""
        running = tuple(self._running.values())
        return [(attempt.task.queue, attempt.task.name, attempt.since) for attempt in running]

    def wanted_count(self) -> int:
        """How many tasks to claim: for the free slots, and as many more as start within milliseconds.

        While enough are in hand, nothing is claimed: a claim for few tasks costs as much as one for many.
        """
        limit = self._settings.count + self._prefetch.prefetch_size()
        in_hand = len(self)
        self._refill_below = limit // 2
        return 0 if self._prefetched and in_hand > self._refill_below else limit - in_hand

    def take(self, claimed: list[Task]) -> None:
        """Start claimed tasks as far as slots are free, and keep the rest until some are."""
        now = self._loop.time()
        self._prefetched.extend([ActiveAttempt(task, now) for task in claimed])
        if self._closed_reason is not None:
            self._release_prefetched(self._closed_reason)
        self._start_prefetched()
        if self._prefetched and self._prefetch_timer is None:
            self._prefetch_timer = self._loop.call_later(MAX_PREFETCH_WAIT, self._release_late_prefetched)

    def close_intake(self, reason: str) -> None:
        """Release prefetched tasks, and from now on every task that is taken, with this reason."""
        self._closed_reason = reason
        self._release_prefetched(reason)

    def on_claim_lost(self, held: ClaimId, noticed_at: str) -> None:
        """A claim is not held any more: stop its handler, or do not start it, and write no outcome.

        A handler that has ended is left alone: its outcome is being written, which shows whether the claim is lost.
        A touch misses its row for that reason, too.
        """
        attempt = self._running.get(held)
        execution = None if attempt is None else attempt.execution
        if execution is not None and not execution.ended and execution.stop_reason is not StopReason.LOST:
            execution.end(StopReason.LOST)
            self._events.emit(claim_lost_event(execution.ctx.task, noticed_at))
        for prefetched in [attempt for attempt in self._prefetched if attempt.held == held]:
            self._prefetched.remove(prefetched)
            self._active_claims.drop([held])
            self._events.emit(claim_lost_event(prefetched.task, noticed_at))

    def request_stop(self) -> None:
        for attempt in list(self._running.values()):
            if attempt.execution is not None:
                attempt.execution.end(StopReason.STOPPING)

    async def wait_until_ended(self, seconds: float | None) -> None:
        """Wait so many seconds at the most for the running attempts, except stuck ones: those end with the process."""
        ending = [attempt.asyncio_task for attempt in self._running.values() if not attempt.is_stuck]
        if asyncio_tasks := [task for task in ending if task is not None]:
            await asyncio.wait(asyncio_tasks, timeout=seconds)

    def _release_late_prefetched(self) -> None:
        """Release prefetched tasks that have waited too long: another process may have free slots."""
        self._prefetch_timer = None
        if not self._prefetched:
            return
        remaining = self._prefetched[0].since + MAX_PREFETCH_WAIT - self._loop.time()
        if remaining > 0:
            self._prefetch_timer = self._loop.call_later(remaining, self._release_late_prefetched)
        else:
            self._prefetch.reset()
            self._release_prefetched("it was claimed ahead, and did not begin in time")

    def _release_prefetched(self, reason: str) -> None:
        while self._prefetched:
            attempt = self._prefetched.popleft()
            attempt.outcome = Released(reason)
            self._outcomes.add(attempt)

    def _start_prefetched(self) -> None:
        while self._prefetched and len(self._running) < self._settings.count:
            self._start(self._prefetched.popleft())

    def _start(self, attempt: ActiveAttempt) -> None:
        if not self._running:
            self._prefetch.start()
            self._outcomes.waits_for_more = True
            self._worker.state = WorkerState.WORK
        task = attempt.task
        self.is_quarantined = task.crashes > 0
        attempt.execution = self._create_execution(task, attempt.held)
        if self._lines is not None:
            attempt.execution.ctx.attempt_log = AttemptLog(self._lines, task, attempt.since)
        self._running[attempt.held] = attempt
        attempt.asyncio_task = self._loop.create_task(
            self._run_attempt(attempt, attempt.execution), name=f"task-{task.id}"
        )

    def _create_execution(self, task: Task, held: ClaimId) -> Execution:
        ctx = Context(
            task,
            node=self._node,
            options=self._settings.options,
            report=lambda progress: self._active_claims.report(held, progress),
            enqueue=self._enqueue,
            client=self._client,
            process=self._worker.current_process,
        )
        handler_adapter = self._worker.adapter_for(task)
        limits = self._default_limits
        timeout, until_finish = timeout_of(task, handler_adapter, self._settings), seconds_until_finish(task)
        if timeout != limits.timeout or until_finish is not None:
            limits = limits._replace(timeout=timeout, until_finish=until_finish)
        return Execution(handler_adapter, ctx, limits, self._callbacks)

    def _report_stuck(self, execution: Execution) -> None:
        """Find the attempt of an execution. A reference from one to the other would be a cycle, which only the garbage
        collector frees: that took a sixth of all processor time with short tasks.
        """
        self._on_stuck(next(attempt for attempt in self._running.values() if attempt.execution is execution))

    async def _run_attempt(self, attempt: ActiveAttempt, execution: Execution) -> None:
        task = attempt.task
        attempt.since = self._loop.time()
        if self._events.has_listeners(AttemptStarted):
            number = task.attempts + 1
            self._events.emit(AttemptStarted(task_id=task.id, queue=task.queue, name=task.name, number=number))
        try:
            attempt.outcome = await execution.outcome(attempt.asyncio_task)
        except Exception as error:  # noqa: BLE001 - a defect of peerd: the process keeps the claim, to count as a crash
            self._loop.call_exception_handler({"message": f"task {task.id} has no outcome", "exception": error})
        else:
            attempt.seconds = self._loop.time() - attempt.since
            if execution.stop_reason is StopReason.LOST:
                self._active_claims.drop([attempt.held])
            else:
                self._outcomes.add(attempt)
        self._release_slot(attempt)

    def _release_slot(self, attempt: ActiveAttempt) -> None:
        del self._running[attempt.held]
        self.ended_count += 1
        self._prefetch.ended()
        self._start_prefetched()
        if not self._running:
            self._prefetch.pause()
            self._outcomes.waits_for_more = False
            self._worker.state = WorkerState.IDLE
        if not self._prefetched or len(self._prefetched) + len(self._running) <= self._refill_below:
            self._on_slot_freed()


class PrefetchEstimate:
    """How many tasks to claim ahead of free slots, from the rate at which attempts end while any run.

    A process that takes a second for a task prefetches nothing: the task would wait while another process may be idle.
    One that ends ten thousand tasks a second would spend most of its time waiting for claims without prefetching.

    >>> seconds = iter([0.0, 0.01, 0.02])
    >>> prefetch = PrefetchEstimate(lambda: next(seconds), slots=10)
    >>> prefetch.start()
    >>> prefetch.ended(100)
    >>> prefetch.prefetch_size()
    100
    """

    def __init__(self, clock: Callable[[], float], slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self._since: float | None = None
        self._worked = 0.0
        self._ended = 0
        self._rate = 0.0

    def start(self) -> None:
        """The first attempt starts after a time in which none ran."""
        self._since = self._clock()

    def pause(self) -> None:
        """The last running attempt has ended."""
        if self._since is not None:
            self._worked += self._clock() - self._since
            self._since = None

    def ended(self, attempts: int = 1) -> None:
        self._ended += attempts

    def reset(self) -> None:
        """The estimate was wrong: prefetch nothing until the rate is measured anew."""
        self._rate, self._worked, self._ended = 0.0, 0.0, 0
        if self._since is not None:
            self._since = self._clock()

    def prefetch_size(self) -> int:
        """Tasks that would start within the horizon at the current rate."""
        self._measure()
        is_quick = self._slots <= MAX_MEAN_SECONDS * self._rate
        return min(int(self._rate * HORIZON), MAX_PREFETCH) if is_quick else 0

    def _measure(self) -> None:
        if self._since is not None:
            now = self._clock()
            self._worked += now - self._since
            self._since = now
        min_seconds, min_attempts = MIN_MEASUREMENT
        if self._worked < min_seconds:
            return
        rate = self._ended / self._worked
        if self._ended >= min_attempts:
            self._rate = rate
            self._worked, self._ended = 0.0, 0
        else:
            self._rate = min(self._rate, rate)  # too few attempts to raise the rate, and enough time to lower it


# ---------------------------------------------------------------- the stacks of attempts


def stack_reporter(slots: ExecutorSlots, slot: str, pid: int) -> Callable[[Any], object]:
    """What answers the agent's request for the stack of a task, also while the event loop is blocked.

    Made on the thread of the event loop, and called on others. The answer is JSON. The call raises LookupError if the
    task does not run here, or its own process does not answer.

    Args:
        slots: in which the attempts run.
        slot: of the process.
        pid: of the process.
    """
    loop_thread = threading.get_ident()

    def answer(data: Any) -> object:
        task_id = data["task"]
        attempt = slots.find_running(task_id)
        if attempt is None or attempt.asyncio_task is None:
            raise LookupError(f"task {task_id} does not run in {slot} any more, or waits there for a free slot")
        remote = remote_stacks_of(attempt.asyncio_task)
        calls = _calls_here(attempt.asyncio_task, loop_thread) if remote is None else remote.read()
        kept, is_cut = bounded(calls)
        found = StackAnswer(
            pid=pid if remote is None else remote.pid,
            slot=slot,
            since=attempt.task.worker_started_at,
            calls=kept,
            is_cut=is_cut,
        )
        return msgspec.to_builtins(found)

    return answer


def _calls_here(task: asyncio.Task[None], loop_thread: int) -> Iterator[CallStack]:
    """The calls of a handler: the thread of a plain function; the awaits of a coroutine, then a busy event loop."""
    thread = thread_started_by(task)
    stack = None if thread is None else stack_of_thread("thread", thread.ident)
    if stack is not None:
        yield stack
        return
    yield from (call for call in stacks_of_task(task, "coroutine") if call.frames)
    if not is_idle_loop(loop_thread) and (busy := stack_of_thread("event loop", loop_thread)):
        yield busy
