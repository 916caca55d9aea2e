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

from peerd.domain.known_handlers import NotServed
from peerd.domain.outcome import ERROR_LIMIT, TRACEBACK_LIMIT, Asked, Deferred, Failed, Outcome, cut
from peerd.domain.task import Task
from peerd.runtime.concurrency.threads import where_is
from peerd.runtime.observability.events import AttemptLingers, Events, HookFailed
from peerd.runtime.process.uncaught_exceptions import ExitRaised, contained, traceback_of, words
from peerd.work.attempts.attempt_outcome import DONE, judge_end, judge_error, judge_value
from peerd.work.attempts.handler_adapter import Code
from peerd.work.attempts.time_limits import Because, TimeLimits
from peerd.work.context import Context

LINGERS_AFTER: Final = 10.0
"""Seconds after which a handler that was told to end, and goes on, is reported."""
FALLBACK_DELAY: Final = 60.0
"""Seconds until the next attempt where the user's own function for it failed."""


_LEFT_BEHIND: Final[set[asyncio.Task[None]]] = set()
"""Hooks after attempts, until they have ended: the event loop keeps no task alive by itself."""


class HandlerExited(Exception):
    """User code raised SystemExit or its like. Out of an asyncio task that would end the whole process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"it raised {words(error)}, which ends the attempt and not the worker")


AskOthers = Callable[[Task, NotServed], Awaitable[Outcome]]


class Callbacks(NamedTuple):
    """What an attempt calls outside of itself, the same for all attempts of a process."""

    events: Events
    """For what hooks do wrong."""
    stuck: Callable[[Execution], object] | None = None
    """Called when an attempt has not returned in its time; None where nothing can be done about it."""
    ask_others: AskOthers | None = None
    """Says what becomes of a task that this process cannot run; without it, there are no others."""


class Execution:
    """An attempt that runs. Its task is cancelled by `end`, which says why.

    Its time has two limits. At the first it is told to end. Code that has not ended `timeout_grace` seconds later is
    stuck: it cannot be ended but with its process, and whoever runs the attempt is told.

    Args:
        code: what runs.
        ctx: for whom.
        limits: the time that it has.
        callbacks: what it calls outside of itself.
    """

    __slots__ = (
        "_callbacks",
        "_code",
        "_enough_of_hooks",
        "_hard_limit",
        "_limits",
        "_lingering",
        "_task",
        "because",
        "ctx",
        "ended",
        "is_stuck",
    )

    def __init__(self, code: Code, ctx: Context, limits: TimeLimits, callbacks: Callbacks) -> None:
        self.ctx = ctx
        self.because: Because | None = None
        self.ended = False
        """Whether the user's code has ended, so that its outcome stands."""
        self.is_stuck = False
        """Whether it has reached the hard limit of its time, and goes on."""
        self._limits = limits
        self._callbacks = callbacks
        self._hard_limit: asyncio.TimerHandle | None = None
        self._enough_of_hooks: asyncio.Event | None = None
        """Set when nobody waits any longer for the hooks after the attempt, while they run."""
        self._code = code
        self._task: asyncio.Task[Any] | None = None
        self._lingering: asyncio.TimerHandle | None = None

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
            if self.because is not None:
                self._cancel_late_timers()
        if task.cancelling():
            await _spend_cancellation(task)
        if self._code.is_hooked and not isinstance(outcome, Deferred):  # which is no attempt
            await self._after(outcome)
        return outcome

    def delay(self) -> float:
        """Seconds until the next attempt, this one having failed."""
        try:
            delay = float(self._code.delay(self.ctx))
            if math.isnan(delay):
                raise ValueError("the delay is not a number")
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a task must not be lost for it
            self._callbacks.events.emit(HookFailed(hook="delay", error=words(error), traceback=traceback_of(error)))
            return FALLBACK_DELAY
        return delay

    def end(self, because: Because) -> None:
        """Tell it to end: coroutines and processes are cancelled, threads can see ``ctx.cancelled``."""
        if self.because is None or because is Because.LOST:
            self.because = because
        self.ctx.cancel()
        if self._enough_of_hooks is not None:
            self._enough_of_hooks.set()
        if self._task is not None and not self.ended:
            self._task.cancel()
            self._lingering = self._lingering or asyncio.get_running_loop().call_later(LINGERS_AFTER, self._say_lingers)

    def _set_timers(self) -> Sequence[asyncio.TimerHandle]:
        if self._limits.timeout is None and self._limits.until_finish is None:
            return ()
        loop = asyncio.get_running_loop()
        limits = ((self._limits.timeout, Because.TIMEOUT), (self._limits.until_finish, Because.FINISH_AT))
        return [
            loop.call_later(max(seconds, 0.0), self._end_for_time, why)
            for seconds, why in limits
            if seconds is not None
        ]

    def _cancel_late_timers(self) -> None:
        for timer in (self._lingering, self._hard_limit):
            if timer is not None:
                timer.cancel()

    def _end_for_time(self, because: Because) -> None:
        self.end(because)
        if not self.ended and self._callbacks.stuck is not None and self._hard_limit is None:
            loop = asyncio.get_running_loop()
            self._hard_limit = loop.call_later(self._limits.timeout_grace, self._reach_the_hard_limit)

    def _reach_the_hard_limit(self) -> None:
        if (
            self.because is not Because.STOPPING and self._callbacks.stuck is not None
        ):  # a stop has a hard limit of its own
            self.is_stuck = True
            self._callbacks.stuck(self)

    @property
    def hard_limit(self) -> str:
        """The limit that stuck code has not kept, in words."""
        return self._limits.hard_limit(self.because)

    def where(self) -> str:
        """Where its code is now, as a traceback shows it."""
        return "" if self._task is None else cut(where_is(self._task), TRACEBACK_LIMIT)

    async def _run(self) -> Outcome:
        """Call the user's code, unless it is to end before it began; judge what came of it."""
        judge: Callable[[], Outcome] = self._judge_end
        if self.because is None:
            code, ctx = self._code, self.ctx
            try:
                try:
                    code.prepare(ctx)
                    if code.is_hooked:
                        await self._before()
                    value = await code.run(ctx)
                    if value is None and self.because is None:
                        return DONE
                    if self._counts(value):
                        judge = partial(judge_value, value, self.delay)
                except (SystemExit, KeyboardInterrupt) as error:
                    raise HandlerExited(error) from error
                except NotServed as error:
                    judge = partial(_as_it_is, await self._not_served(error))
            except GeneratorExit:
                raise  # the event loop is gone
            except asyncio.CancelledError:
                pass
            except BaseException as error:  # noqa: BLE001 - whatever user code raises is an outcome
                stands = partial(judge_error, error, code, self.delay)
                judge = stands if self._stands(error) else partial(self._judge_end, error)
        return self._judged(judge)

    @staticmethod
    def _judged(judge: Callable[[], Outcome]) -> Outcome:
        try:
            return judge()
        except Exception as error:  # noqa: BLE001 - what user code raises and returns is the user's code too
            return Failed(error=f"what it has come to cannot be told: {words(error)}", retry_in=FALLBACK_DELAY)

    def _judge_end(self, error: BaseException | None = None) -> Outcome:
        return judge_end(self.because, self._limits, error, self.delay)

    async def _before(self) -> None:
        """Call the hooks before the attempt, in its own asyncio task: what they set, the handler sees."""
        limit = None
        if self._limits.hook_timeout is not None:
            loop = asyncio.get_running_loop()
            limit = loop.call_later(self._limits.hook_timeout, self._end_for_time, Because.HOOK)
        try:
            await self._code.before(self.ctx)
        finally:
            if limit is not None:
                limit.cancel()

    async def _not_served(self, error: NotServed) -> Outcome:
        if self._callbacks.ask_others is None:
            return Failed(error=cut(str(error), ERROR_LIMIT))
        return await self._callbacks.ask_others(self.ctx.task, error)

    def _say_lingers(self) -> None:
        task = self.ctx.task
        self._callbacks.events.emit(
            AttemptLingers(task_id=task.id, queue=task.queue, name=task.name, because=str(self.because))
        )

    async def _after(self, outcome: Outcome) -> None:
        """Call the hooks after the attempt. However they end, if they do, does not change what happened.

        They are an asyncio task of their own, so that one that does not even let itself be cancelled is left behind.
        """
        self._enough_of_hooks = asyncio.Event()
        enough = asyncio.ensure_future(self._enough_of_hooks.wait())
        hooks = asyncio.ensure_future(contained(self._code.after(self.ctx, outcome)))
        hooks.add_done_callback(self._note_failure)
        _LEFT_BEHIND.add(hooks)
        hooks.add_done_callback(_LEFT_BEHIND.discard)
        with contextlib.suppress(asyncio.CancelledError):  # of somebody who has kept the attempt's task
            await asyncio.wait([hooks, enough], timeout=self._limits.hook_timeout, return_when=asyncio.FIRST_COMPLETED)
        if not hooks.done():
            hooks.cancel()
            late = f"it took longer than {self._limits.its_hook_timeout}"
            error = "its process stops" if self._enough_of_hooks.is_set() else late
            self._callbacks.events.emit(HookFailed(hook="after_attempt", error=f"{error}, and was cancelled"))
        enough.cancel()

    def _note_failure(self, hooks: asyncio.Task[None]) -> None:
        if not hooks.cancelled() and (error := hooks.exception()) is not None:
            raised = error.__cause__ if isinstance(error, ExitRaised) and error.__cause__ else error
            self._callbacks.events.emit(
                HookFailed(hook="after_attempt", error=words(raised), traceback=traceback_of(raised))
            )

    def _stands(self, error: BaseException) -> bool:
        """Whether what it raised counts, although it may have been told to end.

        An outcome that it asks for by name does. Any other exception does not: it may well come of the cancellation.
        """
        return self.because is None or isinstance(error, Asked)

    def _counts(self, value: object) -> bool:
        """The same of what it returned.

        A coroutine that returns a value has caught its cancellation and finished. A thread has finished too, unless it
        is late, or has seen ``ctx.cancelled`` and may have given up, which looks the same.
        """
        if self.because is None or isinstance(value, Asked) or self._code.cancels:
            return True
        return self.because is Because.STOPPING and not self.ctx.saw_cancelled


def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


async def _spend_cancellation(task: asyncio.Task[Any]) -> None:
    """Let a cancellation come to nothing that its code has caught, or has not lived to see."""
    while task.uncancel():
        pass
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
