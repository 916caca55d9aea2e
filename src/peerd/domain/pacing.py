"""Pauses between attempts: backoffs, which grow after each failure, and a token bucket, which keeps a rate. Seconds."""

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


class TokenBucket:
    """Allows a burst, and then a rate; `take` returns the time to wait and refuses nothing.

    >>> bucket = TokenBucket(capacity=2, per_second=10.0)
    >>> [bucket.take(now) for now in (0.0, 0.0, 0.0)]
    [0.0, 0.0, 0.1]
    >>> bucket.fill()
    >>> bucket.take(0.0)
    0.0
    """

    def __init__(self, capacity: int, per_second: float) -> None:
        self._capacity = capacity
        self._per_second = per_second
        self._tokens = float(capacity)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take one token at a monotonic time; return the seconds after which it may be used, 0.0 if there was one."""
        earned = 0.0 if self._at is None else max(now - self._at, 0.0) * self._per_second
        self._tokens = min(self._tokens + earned, self._capacity) - 1.0
        self._at = now
        return max(0.0, -self._tokens / self._per_second)

    def try_take(self, now: float) -> bool:
        """Take a token if there is one; return whether there was."""
        if self.take(now) == 0.0:
            return True
        self._tokens += 1.0
        return False

    def fill(self) -> None:
        """Fill the bucket."""
        self._tokens = float(self._capacity)
