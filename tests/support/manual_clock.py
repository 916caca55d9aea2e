"""A clock for what asks one in seconds, monotonic or not."""

from __future__ import annotations


class ManualClock:
    """It stands until the test moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
