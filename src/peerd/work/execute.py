"""One attempt, from the claimed row to its outcome: check, hooks, run within the time it has, judge what came.

It writes nothing. Whatever user code raises ends here as an outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Protocol

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
from peerd.runtime.events import Events, HookFailed
from peerd.runtime.faults import words
from peerd.work.arguments import encode_result
from peerd.work.context import Context
from peerd.work.process_call import ProcessError


class Because(StrEnum):
    """Why a running attempt is told to end."""

    TIMEOUT = "timeout"
    FINISH_AT = "finish_at"
    LOST = "lost"
    STOPPING = "stopping"


class Code(Protocol):
    """User code for one task, whatever it was declared as."""

    async def run(self, ctx: Context) -> object:
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
        self._code = code
        self._timeout = timeout
        self._until_finish = until_finish
        self._events = events
        self._running: asyncio.Task[object] | None = None

    async def outcome(self) -> Outcome:
        """Run the attempt to its end; how it ended."""
        timers = self._set_timers()
        try:
            outcome = await self._run()
        finally:
            for timer in timers:
                timer.cancel()
        await self._after(outcome)
        return outcome

    def end(self, because: Because) -> None:
        """Tell it to end: coroutines and processes are cancelled, threads can see ``ctx.cancelled``."""
        if self.because is None or because is Because.LOST:
            self.because = because
        self.ctx.cancelled = True
        if self._running is not None:
            self._running.cancel()

    def _set_timers(self) -> list[asyncio.TimerHandle]:
        loop = asyncio.get_running_loop()
        limits = ((self._timeout, Because.TIMEOUT), (self._until_finish, Because.FINISH_AT))
        return [loop.call_later(max(seconds, 0.0), self.end, why) for seconds, why in limits if seconds is not None]

    async def _run(self) -> Outcome:
        self._running = asyncio.ensure_future(self._steps())
        if self.because is not None:
            self._running.cancel()
        try:
            await asyncio.wait([self._running])
        except asyncio.CancelledError:
            self.end(Because.STOPPING)
            await asyncio.wait([self._running])
        return self._judge(self._running)

    async def _steps(self) -> object:
        await self._code.before(self.ctx)
        return await self._code.run(self.ctx)

    async def _after(self, outcome: Outcome) -> None:
        try:
            await self._code.after(self.ctx, outcome)
        except Exception as error:  # noqa: BLE001 - a hook does not change what has happened
            self._events.emit(HookFailed(hook="after_attempt", error=words(error)))

    def _judge(self, ended: asyncio.Task[object]) -> Outcome:
        if ended.cancelled():
            return self._judge_end(None)
        error = ended.exception()
        if self.because is not None and (error is not None or not self._finished_cleanly(ended)):
            return self._judge_end(error)
        if error is not None:
            return self._judge_error(error)
        return self._judge_value(ended.result())

    def _finished_cleanly(self, ended: asyncio.Task[object]) -> bool:
        """Whether it ended by itself although it was told to end.

        A coroutine that returns a value has caught its cancellation and finished. A thread may have seen
        ``ctx.cancelled`` and given up, which looks the same; so its value does not count.
        """
        return bool(getattr(self._code, "cancels", True)) and not ended.cancelled()

    def _judge_end(self, error: BaseException | None) -> Outcome:
        trace = None if error is None else _traceback(error)
        match self.because:
            case Because.TIMEOUT:
                limit = format_duration(self._timeout or 0.0)
                return Failed(
                    error=f"it ran longer than its timeout of {limit}",
                    traceback=trace,
                    retry_in=self._code.delay(self.ctx),
                    label="timeout",
                )
            case Because.FINISH_AT:
                return Canceled("its finish_at came while it ran")
            case Because.LOST:
                return Released("it was taken from this process")
            case Because.STOPPING:
                return Released("its process was stopped")
            case None:
                return Failed(error="the handler cancelled itself", retry_in=self._code.delay(self.ctx))

    def _judge_value(self, value: object) -> Outcome:
        if isinstance(value, Asked):
            return self._judge_asked(value)
        if isinstance(value, type) and issubclass(value, Asked):
            return Failed(error=f"the handler returned the class {value.__name__}; return an object of it")
        try:
            text = value.text if isinstance(value, JsonText) else encode_result(value)
        except (TypeError, ValueError, RecursionError) as error:
            return Failed(error=f"its result is not JSON: {error}; return what JSON can say, or None")
        if text is not None and len(text.encode("utf-8", "replace")) > RESULT_LIMIT:
            size = len(text.encode("utf-8", "replace"))
            advice = "write it to a file or a table, and return where it is"
            return Failed(error=f"its result has {size} bytes, more than {RESULT_LIMIT}: {advice}")
        return Done(text)

    def _judge_asked(self, asked: Asked) -> Outcome:
        match asked:
            case Retry():
                after = asked.after if asked.after is not None else self._code.delay(self.ctx)
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
                return _failed(error, self._code.delay(self.ctx))
            case Exception():
                return _failed(error, None)
            case _:  # SystemExit and its like end a program, not a worker's process
                return _failed(error, self._code.delay(self.ctx))


class JsonText:
    """A result that is JSON text already, because it came from another process."""

    def __init__(self, text: str | None) -> None:
        self.text = text


async def call_hook(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a hook, coroutine function or plain."""
    result = hook(*args)
    if inspect.isawaitable(result):
        await result


def _failed(error: BaseException, retry_in: float | None) -> Failed:
    if isinstance(error, ProcessError):
        text, trace = error.raised.text, error.raised.traceback
    else:
        text, trace = words(error), _traceback(error)
    return Failed(error=cut(text, ERROR_LIMIT), traceback=cut(trace, TRACEBACK_LIMIT), retry_in=retry_in)


def _traceback(error: BaseException) -> str:
    return cut("".join(traceback.format_exception(error)), TRACEBACK_LIMIT)
