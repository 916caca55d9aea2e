"""Wait for a condition, with a time-out: how a test waits for another thread or process."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
Message = str | Callable[[], str]


def eventually(condition: Callable[[], T], timeout: float = 10, every: float = 0.02, message: Message = "") -> T:
    """Wait until a condition holds; its first true value.

    Args:
        condition: called again and again. An AssertionError in it means 'not yet', and is shown after the time-out.
        timeout: seconds.
        every: seconds between two calls.
        message: of the error, or a function that makes it after the time-out.

    Raises:
        AssertionError: it did not hold within the time.

    >>> numbers = iter(range(10))
    >>> eventually(lambda: next(numbers) > 3 and "there", every=0)
    'there'
    """
    deadline = time.monotonic() + timeout
    while True:
        reason: AssertionError | None = None
        try:
            if value := condition():
                return value
        except AssertionError as error:
            reason = error
        if time.monotonic() >= deadline:
            raise _failure(condition, timeout, message) from reason
        time.sleep(every)


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[T]],
    timeout: float = ...,  # noqa: ASYNC109
    every: float = ...,
    message: Message = ...,
) -> T: ...
@overload
async def eventually_async(
    condition: Callable[[], T],
    timeout: float = ...,  # noqa: ASYNC109
    every: float = ...,
    message: Message = ...,
) -> T: ...
async def eventually_async(
    condition: Callable[[], Any],
    timeout: float = 10,  # noqa: ASYNC109 - the parameter of the sync one
    every: float = 0.02,
    message: Message = "",
) -> Any:
    """As `eventually`, for plain and coroutine functions; the event loop runs between two calls."""
    deadline = time.monotonic() + timeout
    while True:
        reason: AssertionError | None = None
        try:
            answer = condition()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
        except AssertionError as error:
            reason = error
        if time.monotonic() >= deadline:
            raise _failure(condition, timeout, message) from reason
        await asyncio.sleep(every)


def _failure(condition: Callable[[], object], timeout: float, message: Message) -> AssertionError:
    text = message() if callable(message) else message
    name = getattr(condition, "__qualname__", repr(condition))
    return AssertionError(f"{text or name}: not true within {timeout:g} s")
