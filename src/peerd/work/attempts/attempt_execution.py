"""One attempt, from the claimed row to its outcome: check, hooks, run within the time it has.

It writes nothing. Whatever user code raises ends here as an outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from peerd.domain.known_handlers import UnsupportedTask
from peerd.domain.outcome import ERROR_LIMIT, TRACEBACK_LIMIT, Deferred, Failed, Outcome, OutcomeSignal, truncate
from peerd.domain.task import Task
from peerd.runtime.concurrency.threads import current_stack
from peerd.runtime.observability.events import AttemptHookFailed, AttemptUnresponsive, EventBus
from peerd.runtime.process.uncaught_exceptions import (
    SystemExitRaised,
    describe_exception,
    format_traceback,
    guard_against_exit,
)
from peerd.work.attempts.attempt_outcome import DONE, outcome_of_exception, outcome_of_stop, outcome_of_value
from peerd.work.attempts.handler_adapter import HandlerAdapter
from peerd.work.attempts.time_limits import StopReason, TimeLimits
from peerd.work.context import Context

REPORT_LINGERING_AFTER: Final = 10.0
"""Seconds after which a handler that was told to end, and goes on, is reported."""
FALLBACK_DELAY: Final = 60.0
"""Seconds until the next attempt where the user's own function for it failed."""


_DETACHED_HOOKS: Final[set[asyncio.Task[None]]] = set()
"""Hooks after attempts, until they have ended: the event loop keeps no task alive by itself."""


class HandlerExited(Exception):
    """User code raised SystemExit or its like. Out of an asyncio task that would end the whole process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"it raised {describe_exception(error)}, which ends the attempt and not the worker")


ResolveUnknownHandler = Callable[[Task, UnsupportedTask], Awaitable[Outcome]]


class AttemptCallbacks(NamedTuple):
    """What an attempt calls outside of itself, the same for all attempts of a process."""

    events: EventBus
    """For what hooks do wrong."""
    stuck: Callable[[Execution], object] | None = None
    """Called when an attempt has not returned in its time; None where nothing can be done about it."""
    resolve_unknown_handler: ResolveUnknownHandler | None = None
    """Says what becomes of a task that this process cannot run; without it, there are no others."""


class Execution:
    """An attempt that runs. Its task is cancelled by `end`, which says why.

    Its time has two limits. At the first it is told to end. Code that has not ended `timeout_grace` seconds later is
    stuck: it cannot be ended but with its process, and whoever runs the attempt is told.

    Args:
        handler_adapter: what runs.
        ctx: for whom.
        limits: the time that it has.
        callbacks: what it calls outside of itself.
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
        "stop_reason",
    )

    def __init__(
        self, handler_adapter: HandlerAdapter, ctx: Context, limits: TimeLimits, callbacks: AttemptCallbacks
    ) -> None:
        self.ctx = ctx
        self.stop_reason: StopReason | None = None
        self.ended = False
        """Whether the user's code has ended, so that its outcome stands."""
        self.is_stuck = False
        """Whether it has reached the hard limit of its time, and goes on."""
        self._limits = limits
        self._callbacks = callbacks
        self._hard_limit: asyncio.TimerHandle | None = None
        self._stop_waiting_for_hooks: asyncio.Event | None = None
        """Set when nobody waits any longer for the hooks after the attempt, while they run."""
        self._handler_adapter = handler_adapter
        self._task: asyncio.Task[Any] | None = None
        self._lingering_timer: asyncio.TimerHandle | None = None

    async def outcome(self, task: asyncio.Task[Any] | None = None) -> Outcome:
        """Run the attempt to its end, in the asyncio task that calls; how it ended.

        Cancelling that task cancels the user's code, whatever for; only `end` says why.

        Args:
            task: the one that calls, where it is at hand.
        """
        task = self._task = task or asyncio.current_task()
        assert task is not None
        timers = self._set_timers()
        try:
            outcome = await self._run()
        finally:
            self.ended = True
            self.is_stuck = False
            for timer in timers:
                timer.cancel()
            if self.stop_reason is not None:
                self._cancel_late_timers()
        if task.cancelling():
            await _consume_cancellation(task)
        if self._handler_adapter.has_hooks and not isinstance(outcome, Deferred):  # which is no attempt
            await self._after(outcome)
        return outcome

    def delay(self) -> float:
        """Seconds until the next attempt, this one having failed."""
        try:
            delay = float(self._handler_adapter.delay(self.ctx))
            if math.isnan(delay):
                raise ValueError("the delay is not a number")
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a task must not be lost for it
            self._callbacks.events.emit(
                AttemptHookFailed(hook="delay", error=describe_exception(error), traceback=format_traceback(error))
            )
            return FALLBACK_DELAY
        return delay

    def end(self, stop_reason: StopReason) -> None:
        """Tell it to end: coroutines and processes are cancelled, threads can see ``ctx.cancelled``."""
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

    def _set_timers(self) -> Sequence[asyncio.TimerHandle]:
        if self._limits.timeout is None and self._limits.until_finish is None:
            return ()
        loop = asyncio.get_running_loop()
        limits = ((self._limits.timeout, StopReason.TIMEOUT), (self._limits.until_finish, StopReason.FINISH_AT))
        return [
            loop.call_later(max(seconds, 0.0), self._on_time_limit, why)
            for seconds, why in limits
            if seconds is not None
        ]

    def _cancel_late_timers(self) -> None:
        for timer in (self._lingering_timer, self._hard_limit):
            if timer is not None:
                timer.cancel()

    def _on_time_limit(self, stop_reason: StopReason) -> None:
        self.end(stop_reason)
        if not self.ended and self._callbacks.stuck is not None and self._hard_limit is None:
            loop = asyncio.get_running_loop()
            self._hard_limit = loop.call_later(self._limits.timeout_grace, self._on_hard_limit)

    def _on_hard_limit(self) -> None:
        if (
            self.stop_reason is not StopReason.STOPPING and self._callbacks.stuck is not None
        ):  # a stop has a hard limit of its own
            self.is_stuck = True
            self._callbacks.stuck(self)

    @property
    def hard_limit_text(self) -> str:
        """The limit that stuck code has not kept, in words."""
        return self._limits.hard_limit_text(self.stop_reason)

    def current_traceback(self) -> str:
        """Where its code is now, as a traceback shows it."""
        return "" if self._task is None else truncate(current_stack(self._task), TRACEBACK_LIMIT)

    async def _run(self) -> Outcome:
        """Call the user's code, unless it is to end before it began; judge what came of it."""
        judge: Callable[[], Outcome] = self._outcome_of_stop
        if self.stop_reason is None:
            handler_adapter, ctx = self._handler_adapter, self.ctx
            try:
                try:
                    handler_adapter.prepare(ctx)
                    if handler_adapter.has_hooks:
                        await self._before()
                    value = await handler_adapter.run(ctx)
                    if value is None and self.stop_reason is None:
                        return DONE
                    if self._result_counts(value):
                        judge = partial(outcome_of_value, value, self.delay)
                except (SystemExit, KeyboardInterrupt) as error:
                    raise HandlerExited(error) from error
                except UnsupportedTask as error:
                    judge = partial(_identity, await self._resolve_unknown_handler(error))
            except GeneratorExit:
                raise  # the event loop is gone
            except asyncio.CancelledError:
                pass
            except BaseException as error:  # noqa: BLE001 - whatever user code raises is an outcome
                stands = partial(outcome_of_exception, error, handler_adapter, self.delay)
                judge = stands if self._exception_counts(error) else partial(self._outcome_of_stop, error)
        return self._outcome_or_failure(judge)

    @staticmethod
    def _outcome_or_failure(judge: Callable[[], Outcome]) -> Outcome:
        try:
            return judge()
        except Exception as error:  # noqa: BLE001 - what user code raises and returns is the user's code too
            return Failed(
                error=f"what it has come to cannot be told: {describe_exception(error)}", retry_in=FALLBACK_DELAY
            )

    def _outcome_of_stop(self, error: BaseException | None = None) -> Outcome:
        return outcome_of_stop(self.stop_reason, self._limits, error, self.delay)

    async def _before(self) -> None:
        """Call the hooks before the attempt, in its own asyncio task: what they set, the handler sees."""
        limit = None
        if self._limits.hook_timeout is not None:
            loop = asyncio.get_running_loop()
            limit = loop.call_later(self._limits.hook_timeout, self._on_time_limit, StopReason.HOOK)
        try:
            await self._handler_adapter.before(self.ctx)
        finally:
            if limit is not None:
                limit.cancel()

    async def _resolve_unknown_handler(self, error: UnsupportedTask) -> Outcome:
        if self._callbacks.resolve_unknown_handler is None:
            return Failed(error=truncate(str(error), ERROR_LIMIT))
        return await self._callbacks.resolve_unknown_handler(self.ctx.task, error)

    def _report_lingering(self) -> None:
        task = self.ctx.task
        self._callbacks.events.emit(
            AttemptUnresponsive(task_id=task.id, queue=task.queue, name=task.name, stop_reason=str(self.stop_reason))
        )

    async def _after(self, outcome: Outcome) -> None:
        """Call the hooks after the attempt. However they end, if they do, does not change what happened.

        They are an asyncio task of their own, so that one that does not even let itself be cancelled is left behind.
        """
        self._stop_waiting_for_hooks = asyncio.Event()
        enough = asyncio.ensure_future(self._stop_waiting_for_hooks.wait())
        hooks = asyncio.ensure_future(guard_against_exit(self._handler_adapter.after(self.ctx, outcome)))
        hooks.add_done_callback(self._report_hook_failure)
        _DETACHED_HOOKS.add(hooks)
        hooks.add_done_callback(_DETACHED_HOOKS.discard)
        with contextlib.suppress(asyncio.CancelledError):  # of somebody who has kept the attempt's task
            await asyncio.wait([hooks, enough], timeout=self._limits.hook_timeout, return_when=asyncio.FIRST_COMPLETED)
        if not hooks.done():
            hooks.cancel()
            late = f"it took longer than {self._limits.hook_timeout_text}"
            error = "its process stops" if self._stop_waiting_for_hooks.is_set() else late
            self._callbacks.events.emit(AttemptHookFailed(hook="after_attempt", error=f"{error}, and was cancelled"))
        enough.cancel()

    def _report_hook_failure(self, hooks: asyncio.Task[None]) -> None:
        if not hooks.cancelled() and (error := hooks.exception()) is not None:
            raised = error.__cause__ if isinstance(error, SystemExitRaised) and error.__cause__ else error
            self._callbacks.events.emit(
                AttemptHookFailed(
                    hook="after_attempt", error=describe_exception(raised), traceback=format_traceback(raised)
                )
            )

    def _exception_counts(self, error: BaseException) -> bool:
        """Whether what it raised counts, although it may have been told to end.

        An outcome that it asks for by name does. Any other exception does not: it may well come of the cancellation.
        """
        return self.stop_reason is None or isinstance(error, OutcomeSignal)

    def _result_counts(self, value: object) -> bool:
        """The same of what it returned.

        A coroutine that returns a value has caught its cancellation and finished. A thread has finished too, unless it
        is late, or has seen ``ctx.cancelled`` and may have given up, which looks the same.
        """
        if self.stop_reason is None or isinstance(value, OutcomeSignal) or self._handler_adapter.is_cancellable:
            return True
        return self.stop_reason is StopReason.STOPPING and not self.ctx.saw_cancelled


def _identity(outcome: Outcome) -> Outcome:
    return outcome


async def _consume_cancellation(task: asyncio.Task[Any]) -> None:
    """Let a cancellation come to nothing that its code has caught, or has not lived to see."""
    while task.uncancel():
        pass
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
