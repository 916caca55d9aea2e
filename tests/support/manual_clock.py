"""A clock in seconds, monotonic or not, for the code under test."""

from __future__ import annotations


class ManualClock:
    """Its time changes only when the test sets it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
