"""Recycling: a process that has served long enough, or grown too large, asks for a fresh one in its place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

import psutil

from peerd.domain.duration import format_duration
from peerd.domain.size import format_size
from peerd.runtime.link import Link
from peerd.work.settings import Settings

LOOK_EVERY: Final = 1.0
SAMPLES: Final = 3
"""Looks in a row that must find too much memory: a moment's peak is not growth."""


class Recycling:
    """Watches a process's tasks, age and memory.

    Args:
        settings: the limits; the age is spread by a tenth, so that processes started together part.
        link: takes the request.
        ended: how many attempts have ended.
    """

    def __init__(self, settings: Settings, link: Link, ended: Callable[[], int]) -> None:
        self._settings = settings
        self._link = link
        self._ended = ended
        self._now = asyncio.get_running_loop().time
        self._born = self._now()
        self._oldest = None if settings.recycle_age is None else settings.recycle_age * random.uniform(0.9, 1.1)
        self._large = 0

    async def watch(self) -> None:
        """Look until there is a reason, then ask once."""
        while (reason := self._reason()) is None:  # noqa: ASYNC110 - nothing announces age or memory
            await asyncio.sleep(LOOK_EVERY)
        self._link.recycle(reason)

    def _reason(self) -> str | None:
        most = self._settings.recycle_after
        if most is not None and self._ended() >= most:
            return f"it has run {self._ended()} tasks (recycle_after = {most})"
        age = self._now() - self._born
        if self._oldest is not None and age >= self._oldest:
            return f"it is {format_duration(round(age))} old (recycle_age)"
        return self._memory_reason()

    def _memory_reason(self) -> str | None:
        limit = self._settings.recycle_memory
        if limit is None:
            return None
        used = memory_in_use()
        self._large = self._large + 1 if used > limit else 0
        if self._large < SAMPLES:
            return None
        return f"it uses {format_size(used)} of memory (recycle_memory = {format_size(limit)})"


def memory_in_use() -> int:
    """Bytes of memory that belong to this process: its share of what it shares, not all of it."""
    info = psutil.Process().memory_full_info()
    return int(getattr(info, "pss", info.uss))
