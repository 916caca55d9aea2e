"""How long a failed task waits before its next attempt. Pure functions; durations in seconds."""

from __future__ import annotations

from collections.abc import Callable


def linear_backoff(attempts: int, ratio: float) -> float:
    """The original's delay: it grows with each failed attempt by the same step.

    Args:
        attempts: how many attempts have failed, the latest one included (the original computed the delay before
            it counted, so its first retry had none; we do not copy that).
        ratio: seconds for each failed attempt.

    >>> [linear_backoff(n, 300.0) for n in (1, 2, 3)]
    [300.0, 600.0, 900.0]
    """
    return attempts * ratio


def exponential_backoff(
    attempts: int,
    *,
    base: float = 1.0,
    factor: float = 2.0,
    maximum: float = 3600.0,
    jitter: float = 0.2,
    random: Callable[[], float],
) -> float:
    """A delay that multiplies with each failed attempt, spread so that tasks that failed together part.

    Args:
        attempts: how many attempts have failed, the latest one included.
        base: seconds after the first failure.
        factor: how much longer each further wait is.
        maximum: seconds at the most, before the jitter.
        jitter: the wait is spread evenly over ±this fraction.
        random: gives numbers in [0, 1); passed in, so that a test can hold it still.

    >>> [exponential_backoff(n, random=lambda: 0.5) for n in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 3600.0]
    >>> exponential_backoff(1, base=10.0, random=lambda: 0.0)
    8.0
    """
    exponent = min(max(attempts, 1) - 1, 64)
    delay = min(base * factor**exponent, maximum)
    return delay * (1.0 - jitter + 2.0 * jitter * random())
