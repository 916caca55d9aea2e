"""What an attempt comes to, by what its code returned or raised, or why it was told to end.

Nothing here has an effect, but that user code is asked: how long the next attempt waits, what its values look like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peerd.domain.errors import InvalidArguments
from peerd.domain.outcome import (
    ERROR_LIMIT,
    RESULT_LIMIT,
    TRACEBACK_LIMIT,
    Cancel,
    Canceled,
    Dead,
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
from peerd.runtime.process.uncaught_exceptions import describe_exception, exception_text, format_traceback
from peerd.work.arguments import encode_result
from peerd.work.attempts.handler_adapter import HandlerAdapter, JsonText
from peerd.work.attempts.handler_process import HandlerProcessError
from peerd.work.attempts.time_limits import StopReason, TimeLimits

Delay = Callable[[], float]
"""Seconds until the next attempt. Only asked where there is one."""

DONE: Final = Done()
"""What most handlers come to: they return nothing."""


def outcome_of_stop(
    stop_reason: StopReason | None, limits: TimeLimits, error: BaseException | None, delay: Delay
) -> Outcome:
    """What an attempt comes to that was told to end, or has cancelled itself. With what it raised, if anything."""
    trace = None if error is None else _traceback(error)
    match stop_reason:
        case StopReason.TIMEOUT:
            return Failed(
                error=f"it ran longer than {limits.timeout_text}",
                traceback=trace,
                retry_in=delay(),
                label="timeout",
            )
        case StopReason.HOOK:
            error_ = f"its hooks before the attempt took longer than {limits.hook_timeout_text}"
            return Failed(error=error_, traceback=trace, retry_in=delay())
        case StopReason.FINISH_AT:
            return Canceled("its finish_at came while it ran")
        case StopReason.LOST:
            return Released("it was taken from this process")
        case StopReason.STOPPING:
            return Released("its process was stopped")
        case None:
            return Failed(error="the handler cancelled itself", retry_in=delay())


def outcome_of_value(value: object, delay: Delay) -> Outcome:
    """What an attempt comes to that returned this."""
    if value is None:
        return DONE
    if isinstance(value, OutcomeSignal):
        return outcome_of_signal(value, delay)
    if isinstance(value, type) and issubclass(value, OutcomeSignal):
        return Failed(error=f"the handler returned the class {value.__name__}; return an object of it")
    try:
        text = value.text if isinstance(value, JsonText) else encode_result(value)
    except Exception as error:  # noqa: BLE001 - the user's own classes are asked what they are
        return Failed(error=f"its result is not JSON: {exception_text(error)}; return what JSON can say, or None")
    if text is not None and len(text.encode("utf-8", "replace")) > RESULT_LIMIT:
        size = len(text.encode("utf-8", "replace"))
        advice = "write it to a file or a table, and return where it is"
        return Failed(error=f"its result has {size} bytes, more than {RESULT_LIMIT}: {advice}")
    return Done(text)


def outcome_of_signal(signal: OutcomeSignal, delay: Delay) -> Outcome:
    """What an attempt comes to that returned or raised one of the outcomes that have names."""
    given: object = signal.reason  # a text, if it was called as it should be
    reason = truncate(
        describe_exception(given) if isinstance(given, BaseException) else exception_text(given), ERROR_LIMIT
    )
    match signal:
        case Retry():
            after = signal.after if signal.after is not None else delay()
            return Failed(error=reason, retry_in=after)
        case Snooze():
            return Snoozed(signal.after, reason)
        case Cancel():
            return Canceled(reason or "the handler canceled it")
        case Dead():
            return Failed(error=reason or "the handler gave it up")
        case other:
            return Failed(error=f"the handler asked for {type(other).__name__}, which is no outcome")


def outcome_of_exception(error: BaseException, handler_adapter: HandlerAdapter, delay: Delay) -> Outcome:
    """What an attempt comes to that raised this."""
    match error:
        case OutcomeSignal():
            return outcome_of_signal(error, delay)
        case InvalidArguments():
            return Failed(error=truncate(str(error), ERROR_LIMIT))
        case Exception() if handler_adapter.retries(error):
            return _failed_outcome(error, delay())
        case Exception():
            return _failed_outcome(error, None)
        case _:
            return _failed_outcome(error, delay())


def _failed_outcome(error: BaseException, retry_in: float | None) -> Failed:
    if isinstance(error, HandlerProcessError):
        text, trace = error.raised.text, error.raised.traceback
    else:
        text, trace = describe_exception(error), _traceback(error)
    return Failed(error=truncate(text, ERROR_LIMIT), traceback=truncate(trace, TRACEBACK_LIMIT), retry_in=retry_in)


def _traceback(error: BaseException) -> str:
    return truncate(format_traceback(error), TRACEBACK_LIMIT)
