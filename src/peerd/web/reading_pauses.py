"""When what is watched is read again: soon while it changes, and less and less often while it does not.

No ring tells that a task has begun or ended: it would cost each drain something, whether the task is watched or not.
But changes come in a row: a task that is enqueued, which rings, begins and mostly ends soon. So after a ring and after
a change the next reading comes soon, and each reading that finds nothing new makes the pause longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

SHORTEST_PAUSE: Final = 0.25
"""Seconds from the end of a reading to the next one, at least."""
REST: Final = 9.0
"""How many times as long as a reading the pause after it is at least: a tenth of the time is for reading."""

GROWTH: Final = 2.0
"""By how much a reading that finds nothing new makes the pause longer."""


class ReadingPauses:
    """The pauses of one reader. Used on one event loop.

    Args:
        longest: seconds between two readings, at the most.
        shortest: seconds, at the least, as they are now.
    """

    def __init__(self, longest: float, shortest: Callable[[], float] = lambda: SHORTEST_PAUSE) -> None:
        self._longest = longest
        self._shortest = shortest
        self._least = self._pause = 0.0
        self._rung = asyncio.Event()
        self._was_rung = False
        self._began_at = self._ended_at = 0.0

    def ring(self) -> None:
        """Something may have changed: read as soon as the least pause is over."""
        self._rung.set()

    def begin(self) -> None:
        """A reading begins; what rings from now on is for the next one."""
        self._was_rung = self._rung.is_set()
        self._rung.clear()
        self._began_at = asyncio.get_running_loop().time()

    def end(self, *, has_changed: bool) -> None:
        """The reading has ended, and has found something new or not."""
        self._ended_at = asyncio.get_running_loop().time()
        took = self._ended_at - self._began_at
        self._least = min(max(self._shortest(), REST * took), self._longest)
        later = min(GROWTH * self._pause, self._longest)
        self._pause = self._least if has_changed or self._was_rung else max(self._least, later)

    async def wait(self) -> None:
        """Wait until the next reading is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ended_at + self._pause):
                await self._rung.wait()
        await asyncio.sleep(self._ended_at + self._least - asyncio.get_running_loop().time())
