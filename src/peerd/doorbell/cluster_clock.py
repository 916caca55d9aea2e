"""The time by which rings are signed and verified: the database's, which all machines of a cluster share."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime


def _since_boot() -> float:
    """A clock that is never set, and that runs while the machine sleeps, where the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ClusterClock:
    """UNIX time by the database's clock as it was last read; by the machine's own clock until then.

    >>> from datetime import UTC
    >>> seconds = 50.0
    >>> clock = ClusterClock(lambda: seconds)
    >>> asked_at = clock.steady()
    >>> seconds = 52.0
    >>> clock.synchronize(datetime.fromtimestamp(7_000, UTC), asked_at)
    >>> seconds = 60.0
    >>> clock()
    7009.0
    """

    def __init__(self, steady: Callable[[], float] = _since_boot) -> None:
        self.steady = steady
        self._offset: float | None = None

    def __call__(self) -> float:
        return time.time() if self._offset is None else self.steady() + self._offset

    @property
    def is_known(self) -> bool:
        return self._offset is not None

    def synchronize(self, now: datetime, asked_at: float) -> None:
        """Take over the database's time.

        Args:
            now: the database's answer.
            asked_at: when it was asked, by `steady`; its clock is assumed to have been read halfway until now.
        """
        self._offset = now.timestamp() - (asked_at + self.steady()) / 2
