"""A subscription, as the code that follows a key holds it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec

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


class Subscription:
    """The updates of a key: ``async for update in subscription``. The last known value comes at once.

    It is ended by `close`, or by leaving ``async with``. An iteration raises what made it impossible, such as
    `SharedCallFailed` when the real client cannot follow the key.
    """

    def __init__(self, key: Any, end: Callable[[Subscription], None], changed: asyncio.Event | None = None) -> None:
        """Made by ``subscribe``.

        Args:
            key: which is followed.
            end: unsubscribes from the source.
            changed: set when an update or an error has come.
        """
        self.key = key
        self.latest: Update | None = None
        """The newest update, whether or not it has been read."""
        self._end = end
        self._backlog: deque[tuple[Any, int, int]] = deque()
        self._changed = changed or asyncio.Event()
        self.error: Exception | None = None
        """Why no further update comes, if none does."""
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
            if (waiting := self.take()) is not None:
                value, number, generation = waiting
                missed = self._last_read is not None and self._last_read != (generation, number - 1)
                self._last_read = (generation, number)
                return Update(key=self.key, value=value, generation=generation, missed=missed)
            if self.error is not None:
                raise self.error
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
        if len(self._backlog) >= MAX_BACKLOG:
            self._backlog.clear()  # the reader is too slow for all updates, and gets the latest
        self._backlog.append((value, number, generation))
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """End the updates with an error."""
        self.error = error
        self._changed.set()

    def take(self) -> tuple[Any, int, int] | None:
        """The oldest waiting value with its number and generation."""
        return self._backlog.popleft() if self._backlog else None
