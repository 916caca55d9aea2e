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
from peerd.runtime.process.uncaught_exceptions import text_of, traceback_of, words
from peerd.work.arguments import encode_result
from peerd.work.attempts.handler_adapter import Code, JsonText
from peerd.work.attempts.handler_process import ProcessError
from peerd.work.attempts.time_limits import Because, TimeLimits

Delay = Callable[[], float]
"""Seconds until the next attempt. Only asked where there is one."""

DONE: Final = Done()
"""What most handlers come to: they return nothing."""


def judge_end(because: Because | None, limits: TimeLimits, error: BaseException | None, delay: Delay) -> Outcome:
    """What an attempt comes to that was told to end, or has cancelled itself. With what it raised, if anything."""
    trace = None if error is None else _traceback(error)
    match because:
        case Because.TIMEOUT:
            return Failed(
                error=f"it ran longer than {limits.its_timeout}",
                traceback=trace,
                retry_in=delay(),
                label="timeout",
            )
        case Because.HOOK:
            error_ = f"its hooks before the attempt took longer than {limits.its_hook_timeout}"
            return Failed(error=error_, traceback=trace, retry_in=delay())
        case Because.FINISH_AT:
            return Canceled("its finish_at came while it ran")
        case Because.LOST:
            return Released("it was taken from this process")
        case Because.STOPPING:
            return Released("its process was stopped")
        case None:
            return Failed(error="the handler cancelled itself", retry_in=delay())


def judge_value(value: object, delay: Delay) -> Outcome:
    """What an attempt comes to that returned this."""
    if value is None:
        return DONE
    if isinstance(value, Asked):
        return judge_asked(value, delay)
    if isinstance(value, type) and issubclass(value, Asked):
        return Failed(error=f"the handler returned the class {value.__name__}; return an object of it")
    try:
        text = value.text if isinstance(value, JsonText) else encode_result(value)
    except Exception as error:  # noqa: BLE001 - the user's own classes are asked what they are
        return Failed(error=f"its result is not JSON: {text_of(error)}; return what JSON can say, or None")
    if text is not None and len(text.encode("utf-8", "replace")) > RESULT_LIMIT:
        size = len(text.encode("utf-8", "replace"))
        advice = "write it to a file or a table, and return where it is"
        return Failed(error=f"its result has {size} bytes, more than {RESULT_LIMIT}: {advice}")
    return Done(text)


def judge_asked(asked: Asked, delay: Delay) -> Outcome:
    """What an attempt comes to that returned or raised one of the outcomes that have names."""
    given: object = asked.reason  # a text, if it was called as it should be
    reason = cut(words(given) if isinstance(given, BaseException) else text_of(given), ERROR_LIMIT)
    match asked:
        case Retry():
            after = asked.after if asked.after is not None else delay()
            return Failed(error=reason, retry_in=after)
        case Snooze():
            return Snoozed(asked.after, reason)
        case Cancel():
            return Canceled(reason or "the handler canceled it")
        case Dead():
            return Failed(error=reason or "the handler gave it up")
        case other:
            return Failed(error=f"the handler asked for {type(other).__name__}, which is no outcome")


def judge_error(error: BaseException, code: Code, delay: Delay) -> Outcome:
    """What an attempt comes to that raised this."""
    match error:
        case Asked():
            return judge_asked(error, delay)
        case InvalidArguments():
            return Failed(error=cut(str(error), ERROR_LIMIT))
        case Exception() if code.retries(error):
            return _failed(error, delay())
        case Exception():
            return _failed(error, None)
        case _:
            return _failed(error, delay())


def _failed(error: BaseException, retry_in: float | None) -> Failed:
    if isinstance(error, ProcessError):
        text, trace = error.raised.text, error.raised.traceback
    else:
        text, trace = words(error), _traceback(error)
    return Failed(error=cut(text, ERROR_LIMIT), traceback=cut(trace, TRACEBACK_LIMIT), retry_in=retry_in)


def _traceback(error: BaseException) -> str:
    return cut(traceback_of(error), TRACEBACK_LIMIT)
