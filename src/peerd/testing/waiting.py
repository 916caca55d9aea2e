"""Wait for a condition, with a time-out: how a test waits for another thread or process."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")
Message = str | Callable[[], str]
SHORTEST_PAUSE: Final = 0.02
"""Seconds between two calls of a condition."""
SHARE_OF_WAIT: Final = 0.05
"""The pause before the next call, as a share of the time waited so far: a wait is at most this much too long."""
LONGEST_PAUSE: Final = 0.1
"""Seconds; a test of many waits must not take the processor from what it waits for."""


def eventually(condition: Callable[[], T], timeout: float = 10, every: float | None = None, message: Message = "") -> T:
    """Wait until a condition holds; its first true value.

    Args:
        condition: called again and again. An AssertionError in it means 'not yet', and is shown after the time-out.
        timeout: seconds.
        every: seconds between two calls. By default 0.02 at first, and a twentieth of a longer wait, 0.1 at the most.
        message: of the error, or a function that makes it after the time-out.

    Raises:
        AssertionError: it did not hold within the time.

    >>> numbers = iter(range(10))
    >>> eventually(lambda: next(numbers) > 3 and "there", every=0)
    'there'
    """
    began = time.monotonic()
    while True:
        reason: AssertionError | None = None
        try:
            if value := condition():
                return value
        except AssertionError as error:
            reason = error
        waited = time.monotonic() - began
        if waited >= timeout:
            raise _failure(condition, timeout, message) from reason
        time.sleep(_pause(every, waited))


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[T]],
    timeout: float = ...,  # noqa: ASYNC109
    every: float | None = ...,
    message: Message = ...,
) -> T: ...
@overload
async def eventually_async(
    condition: Callable[[], T],
    timeout: float = ...,  # noqa: ASYNC109
    every: float | None = ...,
    message: Message = ...,
) -> T: ...
async def eventually_async(
    condition: Callable[[], Any],
    timeout: float = 10,  # noqa: ASYNC109 - the parameter of the sync one
    every: float | None = None,
    message: Message = "",
) -> Any:
    """Wait as `eventually` does, for plain and coroutine functions; the event loop runs between two calls."""
    began = time.monotonic()
    while True:
        reason: AssertionError | None = None
        try:
            answer = condition()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
        except AssertionError as error:
            reason = error
        waited = time.monotonic() - began
        if waited >= timeout:
            raise _failure(condition, timeout, message) from reason
        await asyncio.sleep(_pause(every, waited))


def _pause(every: float | None, waited: float) -> float:
    """Seconds until the next call.

    >>> _pause(None, waited=0.1), _pause(None, waited=1.0), _pause(None, waited=30.0), _pause(0.001, waited=30.0)
    (0.02, 0.05, 0.1, 0.001)
    """
    return max(SHORTEST_PAUSE, min(waited * SHARE_OF_WAIT, LONGEST_PAUSE)) if every is None else every


def _failure(condition: Callable[[], object], timeout: float, message: Message) -> AssertionError:
    text = message() if callable(message) else message
    name = getattr(condition, "__qualname__", repr(condition))
    return AssertionError(f"{text or name}: not true within {timeout:g} s")
