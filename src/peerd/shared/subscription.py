"""A subscription, as the code that follows a key holds it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

T = TypeVar("T")

MAX_BACKLOG: Final = 100
"""Updates that wait for one reader; beyond it all but the latest are dropped."""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a key.

    Args:
        key: which was subscribed to.
        value: the latest.
        generation: greater after each reconnection to the source.
        missed: whether others may have come between this one and the one before: they came too fast, or the agent or
            the connection to the source was replaced meanwhile.
    """

    key: Any
    value: Any
    generation: int
    missed: bool = False


def push_update(backlog: deque[T], item: T, limit: int = MAX_BACKLOG) -> None:
    """Add the latest update; a full backlog is cleared first, for its reader is too slow for all of it.

    >>> backlog = deque()
    >>> for number in range(5):
    ...     push_update(backlog, number, limit=3)
    >>> backlog
    deque([3, 4])
    """
    if len(backlog) >= limit:
        backlog.clear()
    backlog.append(item)


class Subscription:
    """The updates of a key: ``async for update in subscription``. The last known value comes at once.

    It is ended by `close`, or by leaving ``async with``. An iteration raises what made it impossible, such as
    `SharedCallFailed` when the real client cannot follow the key.
    """

    def __init__(self, key: Any, end: Callable[[Subscription], None]) -> None:
        """Made by ``subscribe``.

        Args:
            key: which is followed.
            end: unsubscribes from the source.
        """
        self.key = key
        self.latest: Update | None = None
        """The newest update, whether or not it has been read."""
        self._end = end
        self._backlog: deque[tuple[Any, int, int]] = deque()
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._closed = False
        self._last_read: tuple[int, int] | None = None

    def close(self) -> None:
        """Unsubscribe; an iteration ends."""
        if not self._closed:
            self._closed = True
            self._changed.set()
            self._end(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while not self._closed:
            if self._backlog:
                value, number, generation = self._backlog.popleft()
                missed = self._last_read is not None and self._last_read != (generation, number - 1)
                self._last_read = (generation, number)
                return Update(key=self.key, value=value, generation=generation, missed=missed)
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- for the source

    def deliver(self, value: Any, number: int, generation: int) -> None:
        """Add a value: the `number`th of this generation of the connection to the source."""
        self.latest = Update(key=self.key, value=value, generation=generation)
        push_update(self._backlog, (value, number, generation))
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """End the updates with an error."""
        self._error = error
        self._changed.set()
