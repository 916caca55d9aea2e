"""What pages read is read once for all viewers that may see the same: many open dashboards cost as much as one."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from peerd.domain.access import Actor
from peerd.domain.errors import NotPermitted

T = TypeVar("T")
FRESH_FOR: Final = 1.0
"""Seconds for which an answer is shown to other viewers too; the script of the pages waits longer between two reads."""
MOST_ENTRIES: Final = 1_000
"""Answers that are kept at once; a page reads about five."""


def visibility_of(actor: Actor) -> Actor:
    """The part of an actor that decides what it sees: all that its rights are made of."""
    return msgspec.structs.replace(actor, name="", address=None)


class _Entry:
    __slots__ = ("fresh_for", "future", "loaded_at")

    def __init__(self, future: asyncio.Future[Any], fresh_for: float) -> None:
        self.future = future
        self.fresh_for = fresh_for
        self.loaded_at: float | None = None

    @property
    def is_old(self) -> bool:
        """Whether it is read again for the next viewer."""
        return self.loaded_at is not None and time.monotonic() - self.loaded_at > self.fresh_for


class ReadCache:
    """Answers of the last second, by what was asked and by what the viewer may see.

    Viewers that ask while an answer is being read wait for it. An error is raised for all that wait, and not kept; a
    refusal is of one actor, which it names.
    """

    def __init__(self, fresh_for: float = FRESH_FOR, most: int = MOST_ENTRIES) -> None:
        self._fresh_for = fresh_for
        self._most = most
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    async def read(self, key: Hashable, load: Callable[[], Awaitable[T]], fresh_for: float | None = None) -> T:
        """The answer for a key, at most so old; `load` reads it where there is none.

        Args:
            key: what is asked for, and what the viewer may see.
            load: reads it.
            fresh_for: seconds, where they are not those of the cache.
        """
        entry = self._entries.get(key)
        is_first = entry is None or entry.is_old
        if entry is None or is_first:
            entry = _Entry(asyncio.ensure_future(load()), self._fresh_for if fresh_for is None else fresh_for)
            entry.future.add_done_callback(partial(self._loaded, key, entry))
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._most or next(iter(self._entries.values())).is_old:  # a body may be large
                self._entries.popitem(last=False)
        try:
            answer: T = await asyncio.shield(entry.future)  # one viewer that leaves does not take it from the others
        except NotPermitted:
            if is_first:
                raise
            return await load()
        return answer

    def forget(self) -> None:
        """Read everything anew: an action has changed something, and its viewer shall see it."""
        self._entries.clear()

    def _loaded(self, key: Hashable, entry: _Entry, done: asyncio.Future[Any]) -> None:
        entry.loaded_at = time.monotonic()
        failed = done.cancelled() or done.exception() is not None
        if failed and self._entries.get(key) is entry:
            del self._entries[key]
