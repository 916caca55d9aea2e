"""Whether this node may judge that others are silent.

A node that was cut off, frozen or asleep finds every task untouched although only the node itself was away, and after
an outage of the database no task has been touched. So a node rescues only after its own heartbeats have been written
without a gap for as long as the silence that counts against others. That time begins again after

- a gap between two heartbeats on its monotonic clock (it was frozen, or the database was away);
- a step between its monotonic clock and the database's clock (a clock was set, or the machine slept: the monotonic
  clock does not count sleep).
"""

from __future__ import annotations

from datetime import datetime


class RescueGuard:
    """The heartbeats of this node's manager. Reads no clock: the times are passed in.

    Args:
        needed: seconds without a gap before such a silence of others may be judged.
        gap: seconds between two heartbeats that are too many.

    >>> from datetime import UTC, datetime, timedelta
    >>> midnight = datetime(2026, 1, 1, tzinfo=UTC)
    >>> guard = RescueGuard(needed=30.0, gap=5.0)
    >>> for second in range(0, 31, 3):
    ...     guard.record_heartbeat(float(second), midnight + timedelta(seconds=second))
    >>> guard.steady_seconds(30.0), guard.may_rescue(30.0)
    (30.0, True)
    >>> guard.record_heartbeat(33.0, midnight + timedelta(hours=1))
    >>> guard.may_rescue(33.0), guard.reason
    (False, 'the clocks of the database and of this node moved apart by 3567.0 s')
    """

    def __init__(self, needed: float, gap: float) -> None:
        self.needed = needed
        self.reason = "it has just begun"
        self.gap = gap
        self._since: float | None = None
        self._last: tuple[float, datetime] | None = None

    def record_heartbeat(self, monotonic: float, database: datetime) -> None:
        """Record a written heartbeat: this node's monotonic clock at the reply, and the database's clock in it."""
        fault = self._discontinuity(monotonic, database)
        if fault is not None:
            self.reason = fault
        if fault is not None or self._since is None:
            self._since = monotonic
        self._last = (monotonic, database)

    @property
    def last_heartbeat(self) -> datetime | None:
        """The latest heartbeat by the database's clock: until then, others were able to write theirs too."""
        return None if self._last is None else self._last[1]

    def steady_seconds(self, monotonic: float) -> float:
        """Seconds of heartbeats without a gap; 0 when the latest one is too long ago."""
        if self._since is None or self._last is None or monotonic - self._last[0] > self.gap:
            return 0.0
        return self._last[0] - self._since

    def may_rescue(self, monotonic: float) -> bool:
        """Whether the heartbeats have had no gap for long enough."""
        return self.steady_seconds(monotonic) >= self.needed

    def _discontinuity(self, monotonic: float, database: datetime) -> str | None:
        if self._last is None:
            return None
        local_seconds = monotonic - self._last[0]
        difference = abs((database - self._last[1]).total_seconds() - local_seconds)
        if local_seconds > self.gap:
            return f"no heartbeat for {local_seconds:.1f} s"
        if difference > self.gap:
            return f"the clocks of the database and of this node moved apart by {difference:.1f} s"
        return None
