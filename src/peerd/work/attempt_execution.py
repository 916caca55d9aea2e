"""One attempt, from the claimed row to its outcome: check the arguments, then call hooks and handler within limits.

It writes nothing. Whatever user code raises becomes an outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from peerd.domain.known_handlers import UnsupportedTask
from peerd.domain.outcome import ERROR_LIMIT, TRACEBACK_LIMIT, Deferred, Failed, Outcome, OutcomeSignal, truncate
from peerd.domain.task import Task
from peerd.runtime.concurrency import own_thread
from peerd.runtime.observability.call_stacks import current_stack
from peerd.runtime.observability.events import AttemptHookFailed, EventBus
from peerd.runtime.observability.log_messages import attempt_unresponsive
from peerd.runtime.process.uncaught_exceptions import (
    SystemExitRaised,
    describe_exception,
    format_traceback,
    guard_against_exit,
)
from peerd.work.attempt_log import current_attempt
from peerd.work.attempt_outcome import (
    DONE,
    StopReason,
    TimeLimits,
    outcome_of_exception,
    outcome_of_stop,
    outcome_of_value,
)
from peerd.work.context import Context
from peerd.work.output_capture import STREAM_LEVELS
from peerd.work.task_worker import HandlerAdapter

if TYPE_CHECKING:
    from peerd.runtime.spans import AttemptTracer


REPORT_LINGERING_AFTER: Final = 10.0
"""Seconds after which a handler is reported that was ended and still runs."""
FALLBACK_DELAY: Final = 60.0
"""Seconds until the next attempt where the user's own function for it failed."""

_DETACHED_HOOKS: Final[set[asyncio.Task[None]]] = set()
"""Hooks after attempts, until they have ended: the event loop itself holds its tasks weakly."""


class HandlerExited(Exception):
    """User code raised SystemExit or the like. Raised out of an asyncio task it would end the whole process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"it raised {describe_exception(error)}, which ends the attempt and not the worker")


ResolveUnknownHandler = Callable[[Task, UnsupportedTask], Awaitable[Outcome]]


class AttemptCallbacks(NamedTuple):
    """What an attempt calls, the same for all attempts of a process.

    Attributes:
        events: receives the errors of hooks.
        stuck: called at the hard limit of an attempt's time; None: there is no hard limit.
        resolve_unknown_handler: decides on a task that this process cannot run; None: it is dead.
        tracer: makes the spans of attempts; None: there are none.
    """

    events: EventBus
    stuck: Callable[[Execution], object] | None = None
    resolve_unknown_handler: ResolveUnknownHandler | None = None
    tracer: AttemptTracer | None = None


class Execution:
    """A running attempt. `end` cancels it and records the reason.

    Its time has two limits. At the first it is ended. If its code still runs `timeout_grace` seconds later, it is
    stuck: only the end of the process ends it, and `AttemptCallbacks.stuck` is called.
    """

    __slots__ = (
        "_callbacks",
        "_handler_adapter",
        "_hard_limit",
        "_limits",
        "_lingering_timer",
        "_stop_waiting_for_hooks",
        "_task",
        "ctx",
        "ended",
        "is_stuck",
        "raised",
        "stop_reason",
    )

    def __init__(
        self, handler_adapter: HandlerAdapter, ctx: Context, limits: TimeLimits, callbacks: AttemptCallbacks
    ) -> None:
        self.ctx = ctx
        self.stop_reason: StopReason | None = None
        self.raised: BaseException | None = None
        """What its code has raised, until it was reported. Kept only for a listener: it holds the frames, and they hold
        this."""
        self.ended = False
        """Whether the handler has ended, so that its outcome is final."""
        self.is_stuck = False
        """Whether it still runs after the hard limit of its time."""
        self._limits = limits
        self._callbacks = callbacks
        self._hard_limit: asyncio.TimerHandle | None = None
        self._stop_waiting_for_hooks: asyncio.Event | None = None
        self._handler_adapter = handler_adapter
        self._task: asyncio.Task[Any] | None = None
        self._lingering_timer: asyncio.TimerHandle | None = None

    async def outcome(self, task: asyncio.Task[Any] | None = None) -> Outcome:
        """Run the attempt to its end, in the calling asyncio task, and return its outcome.

        A cancellation of that task cancels the user's code; only `end` records a reason for it.
        """
        task = self._task = task or asyncio.current_task()
        assert task is not None
        log = self.ctx.attempt_log
        if log is None:
            with own_thread():
                return await self._run_with_hooks(task)
        token = current_attempt.set(log)
        try:
            with own_thread():
                return await self._run_with_hooks(task)
        finally:
            current_attempt.reset(token)
            log.end(STREAM_LEVELS)

    async def _run_with_hooks(self, task: asyncio.Task[Any]) -> Outcome:
        timers = self._start_timers()
        try:
            outcome = await (
                self._run() if self._callbacks.tracer is None else self._run_traced(self._callbacks.tracer)
            )
        finally:
            self.ended = True
            self.is_stuck = False
            for timer in timers:
                timer.cancel()
            if self.stop_reason is not None:
                for late_timer in (self._lingering_timer, self._hard_limit):
                    if late_timer is not None:
                        late_timer.cancel()
        if task.cancelling():
            await _consume_cancellation(task)
        if self._handler_adapter.has_hooks and not isinstance(outcome, Deferred):  # which is no attempt
            await self._call_after_hooks(outcome)
        return outcome

    def delay(self) -> float:
        """Seconds until the next attempt, this one having failed."""
        try:
            delay = float(self._handler_adapter.delay(self.ctx))
            if math.isnan(delay):
                raise ValueError("the delay is not a number")
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a task must not be lost for it
            self._emit_hook_failed("delay", describe_exception(error), error)
            return FALLBACK_DELAY
        return delay

    def end(self, stop_reason: StopReason) -> None:
        """Tell it to end: coroutines and processes are cancelled, threads can read ``ctx.cancelled``."""
        if self.stop_reason is None or stop_reason is StopReason.LOST:
            self.stop_reason = stop_reason
        self.ctx.cancel()
        if self._stop_waiting_for_hooks is not None:
            self._stop_waiting_for_hooks.set()
        if self._task is not None and not self.ended:
            self._task.cancel()
            self._lingering_timer = self._lingering_timer or asyncio.get_running_loop().call_later(
                REPORT_LINGERING_AFTER, self._report_lingering
            )

    @property
    def hard_limit_text(self) -> str:
        """The limit that stuck code has exceeded, in words."""
        return self._limits.hard_limit_text(self.stop_reason)

    def current_traceback(self) -> str:
        """The current stack of its code, formatted as a traceback."""
        return "" if self._task is None else truncate(current_stack(self._task), TRACEBACK_LIMIT)

    def _start_timers(self) -> tuple[asyncio.TimerHandle, ...]:
        if self._limits.timeout is None and self._limits.until_finish is None:
            return ()
        limits = ((self._limits.timeout, StopReason.TIMEOUT), (self._limits.until_finish, StopReason.FINISH_AT))
        return tuple(self._start_timer(seconds, reason) for seconds, reason in limits if seconds is not None)

    def _start_timer(self, seconds: float, stop_reason: StopReason) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(seconds, 0.0), self._on_time_limit, stop_reason)

    def _on_time_limit(self, stop_reason: StopReason) -> None:
        self.end(stop_reason)
        if not self.ended and self._callbacks.stuck is not None and self._hard_limit is None:
            loop = asyncio.get_running_loop()
            self._hard_limit = loop.call_later(self._limits.timeout_grace, self._on_hard_limit, self._callbacks.stuck)

    def _on_hard_limit(self, report_stuck: Callable[[Execution], object]) -> None:
        if self.stop_reason is not StopReason.STOPPING:  # a stop has a hard limit of its own
            self.is_stuck = True
            report_stuck(self)

    async def _run_traced(self, tracer: AttemptTracer) -> Outcome:
        with tracer.span_of(self.ctx.task) as span:
            outcome = await self._run()
            tracer.record(span, outcome)
            return outcome

    async def _run(self) -> Outcome:
        """Call the user's code, unless the attempt was stopped before, and judge what it returned or raised."""
        judge: Callable[[], Outcome] = self._outcome_of_stop
        if self.stop_reason is None:
            handler_adapter, ctx = self._handler_adapter, self.ctx
            try:
                try:
                    handler_adapter.prepare(ctx)
                    if handler_adapter.has_hooks:
                        await self._call_before_hooks()
                    value = await handler_adapter.run(ctx)
                    if value is None and self.stop_reason is None:
                        return DONE
                    if self._result_counts(value):
                        judge = partial(outcome_of_value, value, self.delay)
                except (SystemExit, KeyboardInterrupt) as error:
                    raise HandlerExited(error) from error
                except UnsupportedTask as error:
                    return await self._resolve_unknown_handler(error)
            except GeneratorExit:
                raise  # the event loop is gone
            except asyncio.CancelledError:
                pass
            except BaseException as error:  # noqa: BLE001 - any error of user code is an outcome
                self._keep_raised(error)
                of_error = partial(outcome_of_exception, error, handler_adapter, self.delay)
                judge = of_error if self._exception_counts(error) else partial(self._outcome_of_stop, error)
        return _call_judge(judge)

    def _keep_raised(self, error: BaseException) -> None:
        if self._callbacks.events.wants_exceptions:
            self.raised = error.__cause__ if isinstance(error, HandlerExited) else error

    def _outcome_of_stop(self, error: BaseException | None = None) -> Outcome:
        return outcome_of_stop(self.stop_reason, self._limits, error, self.delay)

    def _exception_counts(self, error: BaseException) -> bool:
        """Whether an exception counts: while the attempt is stopped, any but a signal may come of the cancellation."""
        return self.stop_reason is None or isinstance(error, OutcomeSignal)

    def _result_counts(self, value: object) -> bool:
        """Whether a returned value counts although the attempt may have been ended.

        A coroutine that returns a value has caught its cancellation and finished. A thread has finished too, unless it
        is late, or has read ``ctx.cancelled`` and may have given up, which looks the same.
        """
        if self.stop_reason is None or isinstance(value, OutcomeSignal) or self._handler_adapter.is_cancellable:
            return True
        return self.stop_reason is StopReason.STOPPING and not self.ctx.saw_cancelled

    async def _call_before_hooks(self) -> None:
        """Call the hooks in the attempt's own asyncio task: the handler sees the context variables that they set."""
        timer = None
        if self._limits.hook_timeout is not None:
            timer = self._start_timer(self._limits.hook_timeout, StopReason.HOOK)
        try:
            await self._handler_adapter.before(self.ctx)
        finally:
            if timer is not None:
                timer.cancel()

    async def _resolve_unknown_handler(self, error: UnsupportedTask) -> Outcome:
        if self._callbacks.resolve_unknown_handler is None:
            return Failed(error=truncate(str(error), ERROR_LIMIT))
        return await self._callbacks.resolve_unknown_handler(self.ctx.task, error)

    def _report_lingering(self) -> None:
        task = self.ctx.task
        self._callbacks.events.emit(attempt_unresponsive(task.id, task.queue, task.name, str(self.stop_reason)))

    async def _call_after_hooks(self, outcome: Outcome) -> None:
        """Call the hooks after the attempt. Nothing that they do changes the outcome.

        They run in an asyncio task of their own, so that one that suppresses its cancellation can be abandoned.
        """
        self._stop_waiting_for_hooks = asyncio.Event()
        stopped = asyncio.ensure_future(self._stop_waiting_for_hooks.wait())
        hooks = asyncio.ensure_future(guard_against_exit(self._handler_adapter.after(self.ctx, outcome)))
        hooks.add_done_callback(self._report_hook_failure)
        _DETACHED_HOOKS.add(hooks)
        hooks.add_done_callback(_DETACHED_HOOKS.discard)
        with contextlib.suppress(asyncio.CancelledError):  # by code that has kept a reference to the attempt's task
            await asyncio.wait([hooks, stopped], timeout=self._limits.hook_timeout, return_when=asyncio.FIRST_COMPLETED)
        if not hooks.done():
            hooks.cancel()
            late = f"it took longer than {self._limits.hook_timeout_text}"
            error = "its process stops" if self._stop_waiting_for_hooks.is_set() else late
            self._emit_hook_failed("after_attempt", f"{error}, and was cancelled")
        stopped.cancel()

    def _report_hook_failure(self, hooks: asyncio.Task[None]) -> None:
        if not hooks.cancelled() and (error := hooks.exception()) is not None:
            raised = error.__cause__ if isinstance(error, SystemExitRaised) and error.__cause__ else error
            self._emit_hook_failed("after_attempt", describe_exception(raised), raised)

    def _emit_hook_failed(self, hook: str, error: str, raised: BaseException | None = None) -> None:
        trace = None if raised is None else format_traceback(raised)
        self._callbacks.events.emit(AttemptHookFailed(hook=hook, error=error, traceback=trace), raised)


def _call_judge(judge: Callable[[], Outcome]) -> Outcome:
    try:
        return judge()
    except Exception as error:  # noqa: BLE001 - it calls methods of the object that was returned or raised
        return Failed(error=f"its outcome cannot be determined: {describe_exception(error)}", retry_in=FALLBACK_DELAY)


async def _consume_cancellation(task: asyncio.Task[Any]) -> None:
    """Clear cancellations that the user's code has caught, or that came after it had ended."""
    while task.uncancel():
        pass
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
