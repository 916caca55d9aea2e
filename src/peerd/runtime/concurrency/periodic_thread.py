"""A thread that calls a step again and again, whatever the event loop does meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

PeriodicStep = Callable[[float], float]
"""Gets the machine's monotonic clock, in seconds; says after how many seconds it wants to be called again."""


class PeriodicCaller(Protocol):
    """Calls a step from `start` to `stop`."""

    def start(self) -> None:
        """Begin, with a first call at once."""
        ...

    def stop(self) -> None:
        """End, soon; the call that runs is finished."""
        ...

    def join(self, seconds: float) -> None:
        """Wait until it has ended after `stop`, for so long at the most."""
        ...


class PeriodicThread:
    """A ticker in a daemon thread of its own.

    Args:
        step: what it calls; it must not raise.
        name: of the thread.

    >>> calls = []
    >>> ticker = PeriodicThread(lambda now: calls.append(now) or 0.001)
    >>> ticker.start()
    >>> while len(calls) < 3:
    ...     pass
    >>> ticker.stop()
    >>> ticker.join(10.0)
    """

    def __init__(self, step: PeriodicStep, name: str = "peerd-ticker") -> None:
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with a first call at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, soon; the call that runs is finished."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Wait until it has ended after `stop`, for so long at the most."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run_loop(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self._step(time.monotonic())
