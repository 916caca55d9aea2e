"""One attempt, from the claimed row to its outcome: check, hooks, run within the time it has, judge what came.

It writes nothing. Whatever user code raises ends here as an outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import traceback
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

from peerd.domain.duration import format_duration
from peerd.domain.errors import InvalidArguments
from peerd.domain.outcome import (
    ERROR_LIMIT,
    RESULT_LIMIT,
    TRACEBACK_LIMIT,
    Asked,
    Cancel,
    Canceled,
    Dead,
    Done,
    Failed,
    Outcome,
    Released,
    Retry,
    Snooze,
    Snoozed,
    cut,
)
from peerd.domain.task import Task
from peerd.runtime.events import AttemptLingers, Events, HookFailed
from peerd.runtime.faults import words
from peerd.work.arguments import encode_result
from peerd.work.context import Context
from peerd.work.process_call import ProcessError
from peerd.work.settings import Settings

LINGERS_AFTER: Final = 10.0
"""Seconds after which a handler that was told to end, and goes on, is reported."""
FALLBACK_DELAY: Final = 60.0
"""Seconds until the next attempt where the user's own function for it failed."""


DONE: Final = Done()
"""What most handlers come to: they return nothing."""


class Because(StrEnum):
    """Why a running attempt is told to end."""

    TIMEOUT = "timeout"
    FINISH_AT = "finish_at"
    LOST = "lost"
    STOPPING = "stopping"


class HandlerExited(Exception):
    """User code raised SystemExit or its like. Out of an asyncio task that would end the whole process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"it raised {words(error)}, which ends the attempt and not the worker")


class Code(Protocol):
    """User code for one task, whatever it was declared as."""

    @property
    def timeout(self) -> float | None:
        """Seconds that it may run, where it has a limit of its own."""
        ...

    @property
    def cancels(self) -> bool:
        """Whether it ends when it is cancelled; a thread does not."""
        ...

    @property
    def is_hooked(self) -> bool:
        """Whether there is anything in `before` or `after`."""
        ...

    def prepare(self, ctx: Context) -> None:
        """Check the task before anything else is called. Raises what makes it unfit."""
        ...

    def run(self, ctx: Context) -> Awaitable[object]:
        """Run it; the value it returns. Raises whatever it raises."""
        ...

    def retries(self, error: Exception) -> bool:
        """Whether this exception is worth another attempt."""
        ...

    def delay(self, ctx: Context) -> float:
        """Seconds until the next attempt, this one having failed."""
        ...

    async def before(self, ctx: Context) -> None:
        """The hooks before an attempt."""
        ...

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        """The hooks after an attempt."""
        ...


class Execution:
    """An attempt that runs. Its task is cancelled by `end`, which says why.

    Args:
        code: what runs.
        ctx: for whom.
        timeout: seconds that it may run; None is no limit.
        until_finish: seconds until the row's finish_at; None where it has none.
        events: for what hooks do wrong.
    """

    __slots__ = ("_code", "_events", "_lingering", "_task", "_timeout", "_until_finish", "because", "ctx", "ended")

    def __init__(
        self,
        code: Code,
        ctx: Context,
        *,
        timeout: float | None,
        until_finish: float | None,
        events: Events,
    ) -> None:
        self.ctx = ctx
        self.because: Because | None = None
        self.ended = False
        """Whether the user's code has ended, so that its outcome stands."""
        self._code = code
        self._timeout = timeout
        self._until_finish = until_finish
        self._events = events
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
            for timer in timers:
                timer.cancel()
            if self._lingering is not None:
                self._lingering.cancel()
        if task.cancelling():
            await _spend_cancellation(task)
        if self._code.is_hooked:
            await self._after(outcome)
        return outcome

    def delay(self) -> float:
        """Seconds until the next attempt, this one having failed."""
        try:
            delay = float(self._code.delay(self.ctx))
            if math.isnan(delay):
                raise ValueError("the delay is not a number")
        except Exception as error:  # noqa: BLE001 - a task must not be lost for it
            self._events.emit(HookFailed(hook="delay", error=words(error)))
            return FALLBACK_DELAY
        return delay

    def end(self, because: Because) -> None:
        """Tell it to end: coroutines and processes are cancelled, threads can see ``ctx.cancelled``."""
        if self.because is None or because is Because.LOST:
            self.because = because
        self.ctx.cancel()
        if self._task is not None and not self.ended:
            self._task.cancel()
            self._lingering = self._lingering or asyncio.get_running_loop().call_later(LINGERS_AFTER, self._say_lingers)

    def _set_timers(self) -> Sequence[asyncio.TimerHandle]:
        if self._timeout is None and self._until_finish is None:
            return ()
        loop = asyncio.get_running_loop()
        limits = ((self._timeout, Because.TIMEOUT), (self._until_finish, Because.FINISH_AT))
        return [loop.call_later(max(seconds, 0.0), self.end, why) for seconds, why in limits if seconds is not None]

    async def _run(self) -> Outcome:
        if self.because is not None:
            return self._judge_end(None)  # before it began
        code, ctx = self._code, self.ctx
        try:
            try:
                code.prepare(ctx)
                if code.is_hooked:
                    await code.before(ctx)
                value = await code.run(ctx)
            except (SystemExit, KeyboardInterrupt) as error:
                raise HandlerExited(error) from error
        except GeneratorExit:
            raise  # the event loop is gone
        except asyncio.CancelledError:
            return self._judge_end(None)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is an outcome
            return self._judge_error(error) if self._stands(error) else self._judge_end(error)
        return self._judge_value(value) if self._counts(value) else self._judge_end(None)

    def _say_lingers(self) -> None:
        task = self.ctx.task
        self._events.emit(AttemptLingers(task_id=task.id, queue=task.queue, name=task.name, because=str(self.because)))

    async def _after(self, outcome: Outcome) -> None:
        try:
            await self._code.after(self.ctx, outcome)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - it does not change what happened
            self._events.emit(HookFailed(hook="after_attempt", error=words(error)))

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

    def _judge_end(self, error: BaseException | None) -> Outcome:
        trace = None if error is None else _traceback(error)
        match self.because:
            case Because.TIMEOUT:
                limit = format_duration(self._timeout or 0.0)
                return Failed(
                    error=f"it ran longer than its timeout of {limit}",
                    traceback=trace,
                    retry_in=self.delay(),
                    label="timeout",
                )
            case Because.FINISH_AT:
                return Canceled("its finish_at came while it ran")
            case Because.LOST:
                return Released("it was taken from this process")
            case Because.STOPPING:
                return Released("its process was stopped")
            case None:
                return Failed(error="the handler cancelled itself", retry_in=self.delay())

    def _judge_value(self, value: object) -> Outcome:
        if value is None:
            return DONE
        if isinstance(value, Asked):
            return self._judge_asked(value)
        if isinstance(value, type) and issubclass(value, Asked):
            return Failed(error=f"the handler returned the class {value.__name__}; return an object of it")
        try:
            text = value.text if isinstance(value, JsonText) else encode_result(value)
        except Exception as error:  # noqa: BLE001 - the user's own classes are asked what they are
            return Failed(error=f"its result is not JSON: {error}; return what JSON can say, or None")
        if text is not None and len(text.encode("utf-8", "replace")) > RESULT_LIMIT:
            size = len(text.encode("utf-8", "replace"))
            advice = "write it to a file or a table, and return where it is"
            return Failed(error=f"its result has {size} bytes, more than {RESULT_LIMIT}: {advice}")
        return Done(text)

    def _judge_asked(self, asked: Asked) -> Outcome:
        match asked:
            case Retry():
                after = asked.after if asked.after is not None else self.delay()
                return Failed(error=cut(asked.reason, ERROR_LIMIT), retry_in=after)
            case Snooze():
                return Snoozed(asked.after, cut(asked.reason, ERROR_LIMIT))
            case Cancel():
                return Canceled(cut(asked.reason, ERROR_LIMIT) or "the handler canceled it")
            case Dead():
                return Failed(error=cut(asked.reason, ERROR_LIMIT) or "the handler gave it up")
            case other:
                return Failed(error=f"the handler asked for {type(other).__name__}, which is no outcome")

    def _judge_error(self, error: BaseException) -> Outcome:
        match error:
            case Asked():
                return self._judge_asked(error)
            case InvalidArguments():
                return Failed(error=cut(str(error), ERROR_LIMIT))
            case Exception() if self._code.retries(error):
                return _failed(error, self.delay())
            case Exception():
                return _failed(error, None)
            case _:
                return _failed(error, self.delay())


async def _spend_cancellation(task: asyncio.Task[Any]) -> None:
    """Let a cancellation come to nothing that its code has caught, or has not lived to see."""
    while task.uncancel():
        pass
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


class JsonText:
    """A result that is JSON text already, because it came from another process."""

    def __init__(self, text: str | None) -> None:
        self.text = text


async def call_hook(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a hook, coroutine function or plain."""
    result = hook(*args)
    if inspect.isawaitable(result):
        await result


def timeout_of(task: Task, code: Code, settings: Settings) -> float | None:
    """Seconds that an attempt may run: the row's own limit, the handler's, or the worker's."""
    if task.timeout is not None:
        return task.timeout
    return code.timeout if code.timeout is not None else settings.timeout


def _failed(error: BaseException, retry_in: float | None) -> Failed:
    if isinstance(error, ProcessError):
        text, trace = error.raised.text, error.raised.traceback
    else:
        text, trace = words(error), _traceback(error)
    return Failed(error=cut(text, ERROR_LIMIT), traceback=cut(trace, TRACEBACK_LIMIT), retry_in=retry_in)


def _traceback(error: BaseException) -> str:
    return cut("".join(traceback.format_exception(error)), TRACEBACK_LIMIT)
