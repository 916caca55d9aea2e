"""A token bucket: a burst at once, and then a number per second."""

from __future__ import annotations


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
