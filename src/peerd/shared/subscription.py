"""A subscription, as the code that follows a key holds it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

T = TypeVar("T")

MAX_BACKLOG: Final = 100
"""Updates that wait for one that follows; beyond it all but the latest are dropped."""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a key.

    Args:
        key: which was subscribed to.
        value: the latest.
        generation: greater after each new beginning of the connection to the source.
        missed: whether others may have come between this one and the one before: they came too fast, or the agent or
            the connection to the source was replaced meanwhile.
    """

    key: Any
    value: Any
    generation: int
    missed: bool = False


class UpdateBacklog(Generic[T]):
    """What waits for a reader. When it is full, the reader is too slow for all of it and gets the latest only.

    >>> backlog: UpdateBacklog[int] = UpdateBacklog(3)
    >>> for number in range(5):
    ...     backlog.put(number)
    >>> backlog.take(), backlog.take(), backlog.take()
    (3, 4, None)
    """

    def __init__(self, room: int = MAX_BACKLOG) -> None:
        self._room = room
        self._waiting: deque[T] = deque()

    def put(self, item: T) -> None:
        """Add the latest."""
        if len(self._waiting) >= self._room:
            self._waiting.clear()
        self._waiting.append(item)

    def take(self) -> T | None:
        """The oldest that is left; None when there is none."""
        return self._waiting.popleft() if self._waiting else None


class Subscription:
    """The updates of a key: ``async for update in subscription``. The last value that is known comes at once.

    It is ended by `close`, or by leaving ``async with``. An iteration raises what made it impossible, such as
    `SharedCallFailed` when the real client cannot follow the key.
    """

    def __init__(self, key: Any, end: Callable[[Subscription], None]) -> None:
        """Made by ``subscribe``.

        Args:
            key: which is followed.
            end: tells the source that nobody follows any more.
        """
        self.key = key
        self.latest: Update | None = None
        """The newest update that has come, whether or not it has been read."""
        self._end = end
        self._backlog: UpdateBacklog[tuple[Any, int, int]] = UpdateBacklog()
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._closed = False
        self._read: tuple[int, int] | None = None

    def close(self) -> None:
        """Follow no more; an iteration ends."""
        if not self._closed:
            self._closed = True
            self._changed.set()
            self._end(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while not self._closed:
            if (waiting := self._backlog.take()) is not None:
                return self._update_of(*waiting)
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

    # ---------------------------------------------------------------- the source's side

    def deliver(self, value: Any, number: int, generation: int) -> None:
        """Take a value: the `number`th of this generation of the connection to the source."""
        self.latest = Update(key=self.key, value=value, generation=generation)
        self._backlog.put((value, number, generation))
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """Hear that nothing more will come, and why."""
        self._error = error
        self._changed.set()

    def _update_of(self, value: Any, number: int, generation: int) -> Update:
        missed = self._read is not None and self._read != (generation, number - 1)
        self._read = (generation, number)
        return Update(key=self.key, value=value, generation=generation, missed=missed)
