"""The time by which rings are signed and judged: the database's, which all machines of a cluster share."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

Seconds = Callable[[], float]


def _since_boot() -> float:
    """A clock that nobody sets, and that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ClusterClock:
    """UNIX time by the database's clock, as it was heard last; by the machine's own until then.

    Args:
        steady: a clock that nobody sets, in seconds.
        own: the machine's, in UNIX time.

    >>> from datetime import UTC
    >>> seconds = 50.0
    >>> clock = ClusterClock(lambda: seconds, lambda: 1_000.0)
    >>> clock()
    1000.0
    >>> asked_at = clock.steady()
    >>> seconds = 52.0
    >>> clock.synchronize(datetime.fromtimestamp(7_000, UTC), asked_at)
    >>> seconds = 60.0
    >>> clock()
    7009.0
    """

    def __init__(self, steady: Seconds = _since_boot, own: Seconds | None = None) -> None:
        self.steady = steady
        self._own = own or time.time
        self._offset: float | None = None

    def __call__(self) -> float:
        """What time it is."""
        return self._own() if self._offset is None else self.steady() + self._offset

    @property
    def is_known(self) -> bool:
        """Whether the database has been heard."""
        return self._offset is not None

    def synchronize(self, now: datetime, asked_at: float) -> None:
        """The database has said what time it is.

        Args:
            now: what it said.
            asked_at: when it was asked, by `steady`; it is thought to have looked in the middle.
        """
        self._offset = now.timestamp() - (asked_at + self.steady()) / 2
