"""Recycling: a web process that has served long enough asks for a fresh one in its place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peerd.domain.duration import format_duration
from peerd.runtime.process.link import Link

CHECK_EVERY: Final = 1.0
SPREAD: Final = 0.1
"""Part of a limit by which each process's own may differ: those that started together are not to leave together."""


@dataclass(frozen=True, slots=True)
class RecycleLimits:
    """When a process is to be replaced; None is never.

    `requests` and `age`, in seconds, it watches itself. `memory`, in bytes, and `cpu`, in processors, are told to the
    agent, who measures them.
    """

    requests: int | None = None
    age: float | None = None
    memory: int | None = None
    cpu: float | None = None


class WebProcessRecycler:
    """Watches a process's requests and age.

    Args:
        limits: of this process's section.
        link: takes the request.
        answered: how many requests have been answered.
    """

    def __init__(self, limits: RecycleLimits, link: Link, answered: Callable[[], int]) -> None:
        self._link = link
        self._answered = answered
        self._now = asyncio.get_running_loop().time
        self._started_at = self._now()
        spread = random.uniform(1 - SPREAD, 1 + SPREAD)
        self._max_requests = None if limits.requests is None else max(1, round(limits.requests * spread))
        self._max_age = None if limits.age is None else limits.age * spread

    async def watch(self) -> None:
        """Look until there is a reason, then ask once."""
        while (reason := self._reason()) is None:  # noqa: ASYNC110 - nothing announces age
            await asyncio.sleep(CHECK_EVERY)
        self._link.recycle(reason)

    def _reason(self) -> str | None:
        if self._max_requests is not None and self._answered() >= self._max_requests:
            return f"it has answered {self._answered()} requests (recycle_after)"
        age = self._now() - self._started_at
        if self._max_age is not None and age >= self._max_age:
            return f"it is {format_duration(round(age))} old (recycle_age)"
        return None
