"""The reports of alerts that wait for the database: a bounded number, of which those of the same alert are one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from peerd.domain.alert_record import AlertReport


class WaitingReport(msgspec.Struct, frozen=True):
    """A report, and when it came for the first and the latest time, by a monotonic clock in seconds."""

    report: AlertReport
    first_at: float
    latest_at: float


class ReportBuffer:
    """Reports in the order in which they came.

    Args:
        most: further ones drop the oldest.

    >>> buffer = ReportBuffer(most=100)
    >>> away = AlertReport(kind="database-away", subject="a", node="a")
    >>> for second in (1.0, 2.0):
    ...     buffer.add(away, second)
    >>> [(one.report.times, one.first_at, one.latest_at) for one in buffer.take_all()]
    [(2, 1.0, 2.0)]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str, bool], WaitingReport] = {}
        self.dropped = 0
        """How many were dropped."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, report: AlertReport, now: float) -> None:
        """Add one. A condition that has ended and begins again before either is written counts as one that lasts."""
        kind, subject = report.key
        if not report.ended:
            self._waiting.pop((kind, subject, True), None)
        place = (kind, subject, report.ended)
        earlier = self._waiting.get(place)
        added = WaitingReport(report, now, now)
        self._waiting[place] = added if earlier is None else _merged(earlier, added)
        if len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1

    def take_all(self) -> Iterator[WaitingReport]:
        """Take one after another, the oldest first, until none waits."""
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))

    def put_back(self, taken: WaitingReport) -> None:
        """Put back one that could not be written, before all others."""
        kind, subject = taken.report.key
        if taken.report.ended and (kind, subject, False) in self._waiting:
            return  # it has begun again
        place = (kind, subject, taken.report.ended)
        later = self._waiting.pop(place, None)
        self._waiting = {place: taken if later is None else _merged(taken, later), **self._waiting}


def _merged(earlier: WaitingReport, later: WaitingReport) -> WaitingReport:
    """What the later one says, with the times of both; of two ends the first one."""
    if earlier.report.ended:
        return earlier
    times = earlier.report.times + later.report.times
    return WaitingReport(msgspec.structs.replace(later.report, times=times), earlier.first_at, later.latest_at)
