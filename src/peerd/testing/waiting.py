"""Wait for a condition, bounded: the only way in which a test waits for something that happens elsewhere."""

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
        condition: asked again and again. An AssertionError in it means 'not yet', and is shown when the time is over.
        timeout: seconds that one waits at the most.
        every: seconds between two looks.
        message: what was waited for, or what makes that text when the time is over.

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
    timeout: float = 10,  # noqa: ASYNC109 - the words of the sync one
    every: float = 0.02,
    message: Message = "",
) -> Any:
    """As `eventually`, for plain and coroutine functions; the event loop runs on between two looks."""
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
    words = message() if callable(message) else message
    name = getattr(condition, "__qualname__", repr(condition))
    return AssertionError(f"{words or name}: not true within {timeout:g} s")
