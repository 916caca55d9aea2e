"""Measures the lag of a process's event loop from the control thread, and detects a hang."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

MEASURE_INTERVAL: Final = 2.0
"""Seconds between two measurements."""


class LoopMonitor:
    """Schedules a callback on the loop every two seconds, and measures when it runs.

    `on_hang` is called from the control thread once the loop has not answered for `hang_after` seconds.
    """

    def __init__(self, hang_after: float | None, on_hang: Callable[[float], None]) -> None:
        self.in_flight: Callable[[], int] = lambda: 0
        """How many tasks or requests run; a service sets it. Called from the control thread."""
        self._hang_after = hang_after
        self._on_hang = on_hang
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._pinged_at: float | None = None
        self._lag = 0.0
        self._largest_lag = 0.0
        self._is_hanging = False
        self._next_at = 0.0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure this loop from now on."""
        self._loop = loop

    def seconds_until_due(self, now: float) -> float:
        """The time until the next measurement."""
        return max(0.0, self._next_at - now)

    def measure_if_due(self, now: float) -> dict[str, object] | None:
        """Measure, if it is time; return the frame for the master."""
        if now < self._next_at:
            return None
        self._next_at = now + MEASURE_INTERVAL
        lag = self._measure(now)
        self._largest_lag = max(self._largest_lag, lag)
        hangs = self._hang_after is not None and lag >= self._hang_after and self._pinged_at is not None
        if hangs and not self._is_hanging:
            self._on_hang(lag)
        self._is_hanging = hangs
        return {"type": "vitals", "lag": round(lag, 4), "in_flight": self.in_flight()}

    def take_largest_lag(self) -> float:
        """The largest lag that was measured since the last call, in seconds. From any thread."""
        lag, self._largest_lag = self._largest_lag, 0.0
        return lag

    def _measure(self, now: float) -> float:
        """The age of the current ping, or the time that the last one took; send the next one."""
        with self._lock:
            if self._pinged_at is not None:
                return now - self._pinged_at
            lag, self._lag = self._lag, 0.0
            if self._loop is not None:
                self._pinged_at = now
                with contextlib.suppress(RuntimeError):  # the loop is closed, because the process ends
                    self._loop.call_soon_threadsafe(self._on_answer)
            return lag

    def _on_answer(self) -> None:
        with self._lock:
            if self._pinged_at is not None:
                self._lag = time.monotonic() - self._pinged_at
            self._pinged_at = None
