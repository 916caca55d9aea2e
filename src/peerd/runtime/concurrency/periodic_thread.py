"""A thread that calls a step again and again, independent of the event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PeriodicStep = Callable[[float], float]
"""Gets the monotonic clock, in seconds; returns the seconds until its next call. It must not raise."""


class PeriodicThread:
    """Calls a step in a daemon thread of its own.

    >>> calls = []
    >>> thread = PeriodicThread(lambda now: calls.append(now) or 0.001)
    >>> thread.start()
    >>> while len(calls) < 3:
    ...     pass
    >>> thread.stop()
    >>> thread.join(10.0)
    """

    def __init__(self, step: PeriodicStep, name: str = "peerd-ticker") -> None:
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)

    def start(self) -> None:
        """Start, with a first call at once."""
        self._thread.start()

    def stop(self) -> None:
        """Make no more calls; a running one is finished."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Wait for the end after `stop`, for at most this time."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run_loop(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self._step(time.monotonic())
