"""Recycling: a process that has run for long enough, or has grown too large, is replaced by a fresh one.

Nothing is cut off for it. The process asks for its successor, which starts at once, claims nothing more, and runs on
until its tasks have ended. That has no deadline but the `drain_timeout`, if there is one; a stop of the node has its
grace as ever. A process that uses too much memory or processor time has its grace and no more, because its use is the
reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from peerd.domain.duration import format_duration
from peerd.runtime.process.link import Link
from peerd.work.settings import EffectiveWorkerSettings

CHECK_EVERY: Final = 1.0


class WorkerRecycler:
    """Watches the attempts and the age of a process.

    Args:
        settings: the limits; the age is spread by a tenth, so that processes started together part.
        link: takes the request.
        ended: returns how many attempts have ended.
        quiet: stops the claims.
        is_drained: returns whether all tasks have ended.
    """

    def __init__(
        self,
        settings: EffectiveWorkerSettings,
        link: Link,
        ended: Callable[[], int],
        quiet: Callable[[], object],
        is_drained: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._link = link
        self._ended = ended
        self._quiet = quiet
        self._is_drained = is_drained
        self._now = asyncio.get_running_loop().time
        self._started_at = self._now()
        self._max_age = None if settings.recycle_age is None else settings.recycle_age * random.uniform(0.9, 1.1)

    async def watch(self) -> None:
        """Wait until a limit is reached; then ask for a successor, drain, and ask to be replaced."""
        while (reason := self._find_reason()) is None:  # noqa: ASYNC110 - no event announces age
            await asyncio.sleep(CHECK_EVERY)
        self._link.drain(reason)
        self._quiet()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                while not self._is_drained():  # noqa: ASYNC110 - it may take hours
                    await asyncio.sleep(CHECK_EVERY)
        self._link.recycle(reason)

    def _find_reason(self) -> str | None:
        limit, ended = self._settings.recycle_after, self._ended()
        if limit is not None and ended >= limit:
            return f"it has run {ended} tasks (recycle_after = {limit})"
        age = self._now() - self._started_at
        if self._max_age is not None and age >= self._max_age:
            return f"it is {format_duration(round(age))} old (recycle_age)"
        return None
