"""Whether this node may judge others.

A node that was cut off, frozen or asleep sees every task untouched, although it is the one that was away; and after an
outage of the database *nobody* has touched anything. So a node rescues only after it has itself beaten without a gap
for as long as the silence that it would hold against others. The time begins anew after

- a gap between two of its beats, by its monotonic clock (it was frozen, or the database was away);
- a step between its monotonic clock and the database's clock (the clock was set, or the machines slept: the monotonic
  clock does not count sleep).
"""

from __future__ import annotations

from datetime import datetime


class RescueGuard:
    """The beats of this node's manager. Pure: the times are passed in.

    Args:
        needed: seconds without a gap before it may judge others by such a silence.
        gap: seconds between two beats that are too many.

    >>> from datetime import UTC, datetime, timedelta
    >>> midnight = datetime(2026, 1, 1, tzinfo=UTC)
    >>> pulse = RescueGuard(needed=30.0, gap=5.0)
    >>> for second in range(0, 31, 3):
    ...     pulse.record_heartbeat(float(second), midnight + timedelta(seconds=second))
    >>> pulse.steady_seconds(30.0), pulse.may_rescue(30.0)
    (30.0, True)
    >>> pulse.record_heartbeat(33.0, midnight + timedelta(hours=1))
    >>> pulse.may_rescue(33.0), pulse.reason
    (False, "the database's clock and this node's parted by 3567.0 s")
    """

    def __init__(self, needed: float, gap: float) -> None:
        self.needed = needed
        self.reason = "it has just begun"
        self.gap = gap
        self._since: float | None = None
        self._last: tuple[float, datetime] | None = None

    def record_heartbeat(self, monotonic: float, database: datetime) -> None:
        """A beat was written.

        Args:
            monotonic: this node's monotonic clock, in seconds, when the beat's answer came.
            database: the database's clock, as that answer gave it.
        """
        fault = self._discontinuity(monotonic, database)
        if fault is not None:
            self.reason = fault
        if fault is not None or self._since is None:
            self._since = monotonic
        self._last = (monotonic, database)

    @property
    def last_heartbeat(self) -> datetime | None:
        """When it beat last, by the database's clock. Up to that moment, and no further, it knows that others could."""
        return None if self._last is None else self._last[1]

    def steady_seconds(self, monotonic: float) -> float:
        """Seconds since the time began anew, none when the latest beat is too long ago."""
        if self._since is None or self._last is None or monotonic - self._last[0] > self.gap:
            return 0.0
        return self._last[0] - self._since

    def may_rescue(self, monotonic: float) -> bool:
        """Whether this node has beaten without a gap for long enough."""
        return self.steady_seconds(monotonic) >= self.needed

    def _discontinuity(self, monotonic: float, database: datetime) -> str | None:
        if self._last is None:
            return None
        last_monotonic, last_database = self._last
        local_seconds = monotonic - last_monotonic
        database_seconds = (database - last_database).total_seconds()
        if local_seconds > self.gap:
            return f"it has not beaten for {local_seconds:.1f} s"
        if abs(database_seconds - local_seconds) > self.gap:
            return f"the database's clock and this node's parted by {abs(database_seconds - local_seconds):.1f} s"
        return None
