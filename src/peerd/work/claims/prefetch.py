"""How many tasks to claim ahead of free slots, from the measured rate at which attempts end.

A process that takes a second for a task prefetches nothing: the task would wait while another process may be idle. One
that ends ten thousand tasks a second would spend most of its time waiting for claims without prefetching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

HORIZON: Final = 0.01
"""Seconds within which a prefetched task should start."""
MAX_MEAN_SECONDS: Final = 0.02
"""Seconds of an attempt on average. Longer ones that started together end together, and what was prefetched because
their mean is short would wait for all of them."""
MAX_PREFETCH: Final = 1000
"""Tasks: what a hundred thousand a second would start within the horizon. While half of it is at hand the next claim is
on its way: with 500, drains waited for claims, and were slower by 11 % on MariaDB, 14 on PostgreSQL and 4 on SQLite."""
MIN_MEASUREMENT: Final = (0.002, 20)
"""Seconds of work and attempts after which a measurement counts: a clock's tick more or less must not matter."""


class PrefetchEstimate:
    """Measures attempts that end per second, over the time in which any run.

    Args:
        clock: monotonic, in seconds.
        slots: attempts that run at once.

    >>> seconds = iter([0.0, 0.01, 0.02])
    >>> prefetch = PrefetchEstimate(lambda: next(seconds), slots=10)
    >>> prefetch.start()
    >>> prefetch.ended(100)
    >>> prefetch.prefetch_size()
    100
    """

    def __init__(self, clock: Callable[[], float], slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self._since: float | None = None
        self._worked = 0.0
        self._ended = 0
        self._rate = 0.0

    def start(self) -> None:
        """The first attempt starts after a time in which none ran."""
        self._since = self._clock()

    def pause(self) -> None:
        """The last running attempt has ended."""
        if self._since is not None:
            self._worked += self._clock() - self._since
            self._since = None

    def ended(self, attempts: int = 1) -> None:
        self._ended += attempts

    def reset(self) -> None:
        """The estimate was wrong: prefetch nothing until the rate is measured anew."""
        self._rate, self._worked, self._ended = 0.0, 0.0, 0
        if self._since is not None:
            self._since = self._clock()

    def prefetch_size(self) -> int:
        """Tasks that would start within the horizon at the current rate."""
        self._measure()
        is_quick = self._slots <= MAX_MEAN_SECONDS * self._rate
        return min(int(self._rate * HORIZON), MAX_PREFETCH) if is_quick else 0

    def _measure(self) -> None:
        if self._since is not None:
            now = self._clock()
            self._worked += now - self._since
            self._since = now
        min_seconds, min_attempts = MIN_MEASUREMENT
        if self._worked < min_seconds:
            return
        rate = self._ended / self._worked
        if self._ended >= min_attempts:
            self._rate = rate
            self._worked, self._ended = 0.0, 0
        else:
            self._rate = min(self._rate, rate)  # too few attempts to raise the rate, and enough time to lower it
