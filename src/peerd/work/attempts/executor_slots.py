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
from peerd.runtime.observability.events import AttemptStarted, EventBus
from peerd.store.outcomes.recording import ClaimId
from peerd.work.attempts.active_attempt import ActiveAttempt, claim_lost_event, seconds_until_finish
from peerd.work.attempts.attempt_execution import AttemptCallbacks, Execution, ResolveUnknownHandler
from peerd.work.attempts.handler_adapter import timeout_of
from peerd.work.attempts.pending_outcomes import PendingOutcomes
from peerd.work.attempts.time_limits import StopReason, TimeLimits
from peerd.work.claims.active_claims import ActiveClaims
from peerd.work.claims.prefetch import PrefetchEstimate
from peerd.work.context import Context
from peerd.work.settings import EffectiveWorkerSettings
from peerd.work.task_worker import TaskWorker
from peerd.work.worker import WorkerState

MAX_PREFETCH_WAIT: Final = 0.03
"""Seconds that a task which was claimed ahead may wait for a place; then it goes back, for others to take."""


class ExecutorSlots:
    """As many places as the worker's ``count``.

    Args:
        worker: the user's code, and its settings.
        active_claims: what is held, and what is lost of it.
        pending_outcomes: takes what has ended.
        events: what happens.
        node: the node's name.
        enqueue: for ``ctx.enqueue``.
        client: for ``ctx.client``.
        resolve_unknown_handler: see `AttemptCallbacks`.
        freed: called when a place is free, and there is less in hand than it takes to claim nothing.
    """

    def __init__(  # noqa: PLR0913 - what a place needs
        self,
        worker: TaskWorker,
        active_claims: ActiveClaims,
        pending_outcomes: PendingOutcomes,
        events: EventBus,
        *,
        node: str,
        enqueue: Callable[..., Awaitable[Any]] | None,
        client: Any,
        resolve_unknown_handler: ResolveUnknownHandler,
        freed: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._settings: EffectiveWorkerSettings = worker.settings
        self._active_claims = active_claims
        self._pending_outcomes = pending_outcomes
        self._events = events
        self._node = node
        self._enqueue = enqueue
        self._client = client
        self._default_limits = TimeLimits(
            self._settings.timeout, None, self._settings.timeout_grace, self._settings.hook_timeout
        )
        self._callbacks = AttemptCallbacks(events, self._report_stuck, resolve_unknown_handler)
        self._on_slot_freed = freed
        self.stuck: Callable[[ActiveAttempt], object] = lambda _: None
        """Called with an attempt that has reached the hard limit of its time: only the end of the process ends it."""
        self._loop = asyncio.get_running_loop()
        self._prefetch = PrefetchEstimate(self._loop.time, self._settings.count)
        self._prefetched: deque[ActiveAttempt] = deque()
        self._running: dict[ClaimId, ActiveAttempt] = {}
        self._prefetch_timer: asyncio.TimerHandle | None = None
        self._refill_below = 0
        """While there is more in hand, and some of it waits, nothing is claimed; as far as it was last known."""
        self._closed_reason: str | None = None
        """Why nothing more is begun."""
        self.ended_count = 0
        """Attempts that have ended since the start."""
        self.is_quarantined = False
        """Whether the latest one has crashed a process, and so must run alone."""

    def __len__(self) -> int:
        """Tasks that wait for a place or run."""
        return len(self._prefetched) + len(self._running)

    @property
    def free_count(self) -> int:
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

    def running(self) -> list[ClaimId]:
        """What runs."""
        return list(self._running)

    def wanted_count(self) -> int:
        """How many tasks to claim: for the free places, and as many ahead as will begin within milliseconds.

        While there is something in hand, nothing is claimed for the sake of a few.
        """
        most = self._settings.count + self._prefetch.prefetch_size()
        in_hand = len(self)
        self._refill_below = most // 2
        return 0 if self._prefetched and in_hand > self._refill_below else most - in_hand

    def take(self, claimed: list[Task]) -> None:
        """Begin what was claimed, as far as there are places; the rest waits for them."""
        now = self._loop.time()
        self._prefetched.extend([ActiveAttempt(task, now) for task in claimed])
        if self._closed_reason is not None:
            self._release_prefetched(self._closed_reason)
        self._start_prefetched()
        if self._prefetched and self._prefetch_timer is None:
            self._prefetch_timer = self._loop.call_later(MAX_PREFETCH_WAIT, self._release_late_prefetched)

    def close_intake(self, reason: str) -> None:
        """From now on what waits, and what is brought, goes back.

        Args:
            reason: for whoever looks.
        """
        self._closed_reason = reason
        self._release_prefetched(reason)

    def on_claim_lost(self, held: ClaimId, noticed_at: str) -> None:
        """A claim is not ours any more: end its handler, or do not begin it, and write nothing.

        When the handler has ended, its last write is under way, and tells: a touch may have missed the row for that.
        """
        attempt = self._running.get(held)
        if attempt is not None and attempt.can_be_lost:
            attempt.request_stop(StopReason.LOST)
            self._events.emit(claim_lost_event(attempt.task, noticed_at))
        for waiting in [one for one in self._prefetched if one.held == held]:
            self._prefetched.remove(waiting)
            self._active_claims.drop([held])
            self._events.emit(claim_lost_event(waiting.task, noticed_at))

    def request_stop(self) -> None:
        """The process stops: tell all that runs to end."""
        for attempt in list(self._running.values()):
            attempt.request_stop(StopReason.STOPPING)

    async def wait_until_ended(self, seconds: float | None) -> None:
        """Wait for what runs. What is stuck is not waited for: it ends with the process.

        Args:
            seconds: at the most; None is without end.
        """
        ending = [attempt for attempt in self._running.values() if not attempt.is_stuck]
        asyncio_task = [attempt.asyncio_task for attempt in ending if attempt.asyncio_task is not None]
        if asyncio_task:
            await asyncio.wait(asyncio_task, timeout=seconds)

    def _release_late_prefetched(self) -> None:
        """What was claimed ahead should have begun by now; if not, others may be free for it."""
        self._prefetch_timer = None
        if not self._prefetched:
            return
        patience = self._prefetched[0].since + MAX_PREFETCH_WAIT - self._loop.time()
        if patience > 0:
            self._prefetch_timer = self._loop.call_later(patience, self._release_late_prefetched)
        else:
            self._prefetch.reset()
            self._release_prefetched("it was claimed ahead, and did not begin in time")

    def _release_prefetched(self, reason: str) -> None:
        while self._prefetched:
            attempt = self._prefetched.popleft()
            attempt.outcome = Released(reason)
            self._pending_outcomes.add(attempt)

    def _start_prefetched(self) -> None:
        while self._prefetched and len(self._running) < self._settings.count:
            self._start(self._prefetched.popleft())

    def _start(self, attempt: ActiveAttempt) -> None:
        if not self._running:
            self._prefetch.start()
            self._worker.state = WorkerState.WORK
        task = attempt.task
        self.is_quarantined = task.crashes > 0
        attempt.execution = self._create_execution(task, attempt.held)
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
        """Find its attempt and tell. An execution that knew its attempt would be a circle, which only the collector of
        garbage takes apart: a sixth of all processor time where tasks are short.
        """
        self.stuck(next(attempt for attempt in self._running.values() if attempt.execution is execution))

    async def _run_attempt(self, attempt: ActiveAttempt, execution: Execution) -> None:
        """One attempt: run it, have its outcome written, free its place."""
        task = attempt.task
        attempt.since = self._loop.time()
        if self._events.has_listeners(AttemptStarted):
            number = task.attempts + 1
            self._events.emit(AttemptStarted(task_id=task.id, queue=task.queue, name=task.name, number=number))
        try:
            attempt.outcome = await execution.outcome(attempt.asyncio_task)
        except Exception as error:  # noqa: BLE001 - nothing of ours may raise here; see `PendingOutcomes.taint`
            self._pending_outcomes.taint(attempt, error)
        else:
            attempt.seconds = self._loop.time() - attempt.since
            if execution.stop_reason is StopReason.LOST:
                self._active_claims.drop([attempt.held])
            else:
                self._pending_outcomes.add(attempt)
        self._release_slot(attempt)

    def _release_slot(self, attempt: ActiveAttempt) -> None:
        del self._running[attempt.held]
        self.ended_count += 1
        self._prefetch.ended()
        self._start_prefetched()
        if not self._running:
            self._prefetch.pause()
            self._worker.state = WorkerState.IDLE
        if not self._prefetched or len(self._prefetched) + len(self._running) <= self._refill_below:
            self._on_slot_freed()
