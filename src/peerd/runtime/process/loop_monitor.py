"""How a process's event loop answers, measured from outside it: by the thread that watches over the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

EVERY: Final = 2.0
"""Seconds between two measurements."""


class Vitals:
    """Asks the loop a question every two seconds, and notes how long the answer takes.

    Args:
        hang_after: seconds without an answer after which the loop hangs; None if it may take its time.
        on_hang: called once for each hang, from the watching thread, with the seconds so far.
    """

    def __init__(self, hang_after: float | None, on_hang: Callable[[float], None]) -> None:
        self.in_flight: Callable[[], int] = lambda: 0
        """How many tasks or requests run; a service sets it. Called from the watching thread."""
        self._hang_after = hang_after
        self._on_hang = on_hang
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._lag = 0.0
        self._hangs = False
        self._due = 0.0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure this loop from now on."""
        self._loop = loop

    def seconds_until_due(self, now: float) -> float:
        """Return how long there is nothing to do."""
        return max(0.0, self._due - now)

    def look(self, now: float) -> dict[str, object] | None:
        """Measure, if it is time; return the frame that tells the master."""
        if now < self._due:
            return None
        self._due = now + EVERY
        lag = self._measure(now)
        self._judge(lag)
        return {"type": "vitals", "lag": round(lag, 4), "in_flight": self.in_flight()}

    def _measure(self, now: float) -> float:
        """Return how long the present question has been open, or how long the last answer took; ask anew."""
        with self._lock:
            if self._asked_at is not None:
                return now - self._asked_at
            lag, self._lag = self._lag, 0.0
            if self._loop is not None:
                self._asked_at = now
                with contextlib.suppress(RuntimeError):  # the loop is closed: the process is leaving
                    self._loop.call_soon_threadsafe(self._answer)
            return lag

    def _answer(self) -> None:
        with self._lock:
            if self._asked_at is not None:
                self._lag = time.monotonic() - self._asked_at
            self._asked_at = None

    def _judge(self, lag: float) -> None:
        hangs = self._hang_after is not None and lag >= self._hang_after and self._asked_at is not None
        if hangs and not self._hangs:
            self._on_hang(lag)
        self._hangs = hangs
