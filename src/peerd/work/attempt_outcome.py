"""The outcome of an attempt: from what its code returned or raised, or from the reason for which it was stopped.

The functions have no effects, but they call user code: the delay of the next attempt, and the conversion of values.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from peerd.domain.errors import InvalidArguments
from peerd.domain.known_handlers import UnsupportedTask, decide_unsupported_task
from peerd.domain.outcome import (
    ERROR_LIMIT,
    RESULT_LIMIT,
    TRACEBACK_LIMIT,
    Cancel,
    Canceled,
    Dead,
    Deferred,
    Done,
    Failed,
    Outcome,
    OutcomeSignal,
    Released,
    Retry,
    Snooze,
    Snoozed,
    truncate,
)
from peerd.domain.task import Task
from peerd.domain.units import format_duration
from peerd.runtime.process.uncaught_exceptions import describe_exception, exception_text, format_traceback
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.known_handlers import read_known_handlers
from peerd.work.arguments import encode_result
from peerd.work.handler_process import HandlerProcessError, HandlerReturned
from peerd.work.task_worker import HandlerAdapter

Delay = Callable[[], float]
"""Seconds until the next attempt; called only where one follows."""

DONE: Final = Done()
"""The outcome of a handler that returns None, as most do."""


MAX_YIELD_DELAY: Final = 0.2
"""Seconds at the most that a process which has released a task with an unknown handler waits after a ring. Random,
because where two versions each lack a handler of the other, processes of both wait."""


class StopReason(StrEnum):
    """Why a running attempt is ended."""

    TIMEOUT = "timeout"
    FINISH_AT = "finish_at"
    HOOK = "hook"
    LOST = "lost"
    STOPPING = "stopping"


class TimeLimits(NamedTuple):
    """Seconds that an attempt has. None is no limit.

    Attributes:
        timeout: of the attempt.
        until_finish: until the row's finish_at.
        timeout_grace: to return, after either of them.
        hook_timeout: for the hooks before the attempt together, and for those after it.
    """

    timeout: float | None = None
    until_finish: float | None = None
    timeout_grace: float = 0.0
    hook_timeout: float | None = None

    @property
    def timeout_text(self) -> str:
        return f"its timeout of {format_duration(self.timeout or 0.0)}"

    @property
    def hook_timeout_text(self) -> str:
        return f"its hook_timeout of {format_duration(self.hook_timeout or 0.0)}"

    def hard_limit_text(self, stop_reason: StopReason | None) -> str:
        """The limit that code has exceeded that was ended and still runs, in words."""
        match stop_reason:
            case StopReason.FINISH_AT:
                after = "its finish_at"
            case StopReason.HOOK:
                after = self.hook_timeout_text
            case _:
                after = self.timeout_text
        return f"did not return within {format_duration(self.timeout_grace)} after {after}"


def outcome_of_stop(
    stop_reason: StopReason | None, limits: TimeLimits, error: BaseException | None, delay: Delay
) -> Outcome:
    """The outcome of an attempt that was ended, or has cancelled itself, and of the exception it raised."""
    trace = None if error is None else _traceback(error)
    match stop_reason:
        case StopReason.TIMEOUT:
            text = f"it ran longer than {limits.timeout_text}"
            return Failed(error=text, traceback=trace, retry_in=delay(), label="timeout")
        case StopReason.HOOK:
            text = f"its hooks before the attempt took longer than {limits.hook_timeout_text}"
            return Failed(error=text, traceback=trace, retry_in=delay())
        case StopReason.FINISH_AT:
            return Canceled("its finish_at came while it ran")
        case StopReason.LOST:
            return Released("it was taken from this process")
        case StopReason.STOPPING:
            return Released("its process was stopped")
        case None:
            return Failed(error="the handler cancelled itself", retry_in=delay())


def outcome_of_value(value: object, delay: Delay) -> Outcome:
    """The outcome of an attempt whose handler returned this value."""
    if value is None:
        return DONE
    if isinstance(value, OutcomeSignal):
        return outcome_of_signal(value, delay)
    if isinstance(value, type) and issubclass(value, OutcomeSignal):
        return Failed(error=f"the handler returned the class {value.__name__}; return an object of it")
    try:
        text = value.result if isinstance(value, HandlerReturned) else encode_result(value)
    except Exception as error:  # noqa: BLE001 - encoding calls methods of the user's classes
        return Failed(error=f"its result is not JSON: {exception_text(error)}; return what JSON can say, or None")
    size = 0 if text is None else len(text.encode("utf-8", "replace"))
    if size > RESULT_LIMIT:
        advice = "write it to a file or a table, and return where it is"
        return Failed(error=f"its result has {size} bytes, more than {RESULT_LIMIT}: {advice}")
    return Done(text)


def outcome_of_signal(signal: OutcomeSignal, delay: Delay) -> Outcome:
    """The outcome of an attempt whose handler returned or raised Retry, Snooze, Cancel or Dead."""
    given: object = signal.reason  # a text, unless the caller passed something else
    text = describe_exception(given) if isinstance(given, BaseException) else exception_text(given)
    reason = truncate(text, ERROR_LIMIT)
    match signal:
        case Retry():
            return Failed(error=reason, retry_in=signal.after if signal.after is not None else delay())
        case Snooze():
            return Snoozed(signal.after, reason)
        case Cancel():
            return Canceled(reason or "the handler canceled it")
        case Dead():
            return Failed(error=reason or "the handler gave it up")
        case other:
            return Failed(error=f"the handler asked for {type(other).__name__}, which is no outcome")


def outcome_of_exception(error: BaseException, handler_adapter: HandlerAdapter, delay: Delay) -> Outcome:
    """The outcome of an attempt that raised this."""
    if isinstance(error, OutcomeSignal):
        return outcome_of_signal(error, delay)
    if isinstance(error, InvalidArguments):
        return Failed(error=truncate(str(error), ERROR_LIMIT))
    is_last = isinstance(error, Exception) and not handler_adapter.retries(error)
    retry_in = None if is_last else delay()
    if isinstance(error, HandlerProcessError):
        text, trace = error.raised.text, truncate(error.raised.traceback, TRACEBACK_LIMIT)
    else:
        text, trace = describe_exception(error), _traceback(error)
    return Failed(error=truncate(text, ERROR_LIMIT), traceback=trace, retry_in=retry_in)


def _traceback(error: BaseException) -> str:
    return truncate(format_traceback(error), TRACEBACK_LIMIT)


class UnknownHandlerResolver:
    """Decides on tasks that this process cannot run, because the code that enqueued them is newer or older.

    A task is dead whose handler no process of the cluster has known for `unknown_after` seconds. Others are released,
    and are claimed again by whichever process sees them first. Processes that do not know the handler would claim them
    again and again before those that do, so a process that has released such a task delays its next claims a little.
    """

    def __init__(self, database: DatabaseThreads, outages: OutageTracker, unknown_after: float) -> None:
        self._database = database
        self._outages = outages
        self._unknown_after = unknown_after
        self._has_deferred = False

    async def resolve_unknown_handler(self, task: Task, error: UnsupportedTask) -> Outcome:
        """The outcome of a task that this process holds and cannot run."""
        snapshot = await self._outages.retry_while_down(
            lambda: self._database.read(read_known_handlers, task, self._unknown_after)
        )
        outcome = decide_unsupported_task(task, error, snapshot, self._unknown_after)
        self._has_deferred |= isinstance(outcome, Deferred)
        return outcome

    def yield_delay(self) -> float:
        """Seconds that this process leaves to others before it claims after a ring."""
        return random.uniform(0.0, MAX_YIELD_DELAY) if self._has_deferred else 0.0
