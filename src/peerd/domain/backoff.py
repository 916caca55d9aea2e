"""Pauses that grow between attempts: of a task after a failure, and of every loop that retries. Seconds."""

from __future__ import annotations

from collections.abc import Callable
from random import random as system_random
from typing import Final

LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts while the database is away."""


def exponential_backoff(
    attempts: int,
    *,
    base: float = 1.0,
    factor: float = 2.0,
    maximum: float = 3600.0,
    jitter: float = 0.2,
    random: Callable[[], float] = system_random,
) -> float:
    """A delay that multiplies with each failed attempt, spread so that tasks that failed together part.

    Args:
        attempts: how many attempts have failed, the latest one included.
        base: seconds after the first failure.
        factor: how much longer each further wait is.
        maximum: seconds at the most, before the jitter.
        jitter: the wait is spread evenly over ±this fraction; with 0 no random number is drawn.
        random: gives numbers in [0, 1); a test can fix it.

    >>> [exponential_backoff(n, random=lambda: 0.5) for n in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 3600.0]
    >>> exponential_backoff(1, base=10.0, random=lambda: 0.0)
    8.0
    """
    exponent = min(max(attempts, 1) - 1, 64)
    delay = min(base * factor**exponent, maximum)
    return delay * (1.0 - jitter + 2.0 * jitter * random()) if jitter else delay


class Backoff:
    """The pauses of a loop that retries: each twice as long as the one before, up to the longest, and spread.

    Args:
        first: seconds.
        longest: likewise, before it is spread.
        jitter: as for `exponential_backoff`.

    >>> backoff = Backoff(first=1.0, longest=4.0, jitter=0.0)
    >>> [backoff.next() for _ in range(4)]
    [1.0, 2.0, 4.0, 4.0]
    >>> backoff.reset()
    >>> backoff.next()
    1.0
    """

    def __init__(self, first: float = 0.1, longest: float = LONGEST_PAUSE, jitter: float = 0.5) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self.reset()

    def next(self) -> float:
        """The next pause."""
        self._attempts += 1
        return exponential_backoff(self._attempts, base=self._first, maximum=self._longest, jitter=self._jitter)

    def reset(self) -> None:
        """Begin with the first pause again, because an attempt has succeeded."""
        self._attempts = 0
