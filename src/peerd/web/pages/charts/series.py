"""Charts of the time series that the client reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from peerd.operate.figures import AttemptFigures, SeriesPoint
from peerd.store.queue_states import DepthPoint
from peerd.store.time_series import step_for
from peerd.web.pages import formats
from peerd.web.pages.charts.lines import Line, LineChart

MOST_LINES: Final = 6
"""Groups with a line of their own: those with the most attempts."""
Measure = Callable[[AttemptFigures], float | None]


def label_of(point: SeriesPoint) -> str:
    """The group of a point.

    >>> from peerd.operate.figures import AttemptFigures
    >>> from peerd.domain.attempt_totals import AttemptTotals
    >>> figures = AttemptFigures.of(AttemptTotals(), 60)
    >>> label_of(SeriesPoint(at=datetime(2026, 1, 1, tzinfo=UTC), queue="video", name="cut", figures=figures))
    'video / cut'
    """
    if point.name is not None:
        return f"{point.queue} / {point.name or '(no name)'}"
    return point.queue or point.node or "all"


class TimeAxis:
    """The moments of a chart: all of a time that ends now, whether anything happened then or not.

    Args:
        now: the database's time.
        seconds: of that time.
    """

    def __init__(self, now: datetime, seconds: float) -> None:
        self._step = step_for(seconds)
        last = self.moment_of(now)
        count = round(seconds / self._step)
        self.moments = [last - timedelta(seconds=self._step * number) for number in range(count, -1, -1)]

    def moment_of(self, at: datetime) -> datetime:
        """The moment of the axis to which a point belongs."""
        return datetime.fromtimestamp(at.timestamp() // self._step * self._step, UTC)


def charts_of_attempts(points: Sequence[SeriesPoint], axis: TimeAxis) -> list[LineChart]:
    """Throughput, failures, waits and run times of the groups with the most attempts."""
    groups = _greatest_groups(points, axis)
    moments = axis.moments
    per_second: Measure = lambda figures: figures.per_second  # noqa: E731
    failed_per_second: Measure = lambda figures: figures.failures / figures.seconds  # noqa: E731
    charts = [
        _chart("throughput", "Tasks done", moments, groups, {"": per_second}, formats.rate, gap=0.0),
        _chart("failures", "Failed attempts", moments, groups, {"": failed_per_second}, formats.rate, gap=0.0),
    ]
    quantiles: dict[str, tuple[Measure, Measure]] = {
        "p50": (lambda figures: figures.wait.p50, lambda figures: figures.run.p50),
        "p95": (lambda figures: figures.wait.p95, lambda figures: figures.run.p95),
    }
    shown = quantiles if len(groups) == 1 else {"": quantiles["p95"]}
    suffix = "" if len(groups) == 1 else " (p95)"
    waits = {name: both[0] for name, both in shown.items()}
    runs = {name: both[1] for name, both in shown.items()}
    return [
        *charts,
        _chart("waits", f"Wait until the claim{suffix}", moments, groups, waits, formats.duration),
        _chart("runs", f"Run time{suffix}", moments, groups, runs, formats.duration),
    ]


def chart_of_depths(points: Sequence[DepthPoint], axis: TimeAxis) -> LineChart:
    """Unfinished tasks by status; there is a gap where no node has counted them."""
    counts = {(point.status, axis.moment_of(point.at)): point.count for point in points}
    sampled = {at for _, at in counts}
    lines = [
        Line(status, [counts.get((status, at), 0) if at in sampled else None for at in axis.moments], status)
        for status in sorted({point.status for point in points})
    ]
    return LineChart(id="depths", title="Unfinished tasks", at=axis.moments, lines=lines, show=formats.number)


def _greatest_groups(points: Sequence[SeriesPoint], axis: TimeAxis) -> dict[str, dict[datetime, AttemptFigures]]:
    groups: dict[str, dict[datetime, AttemptFigures]] = defaultdict(dict)
    totals: dict[str, int] = defaultdict(int)
    for point in points:
        label = label_of(point)
        groups[label][axis.moment_of(point.at)] = point.figures
        totals[label] += point.figures.done + point.figures.failures
    greatest = sorted(totals, key=lambda label: (-totals[label], label))[:MOST_LINES]
    return {label: groups[label] for label in greatest}


def _chart(
    id: str,  # noqa: A002 - as the element has it
    title: str,
    moments: Sequence[datetime],
    groups: dict[str, dict[datetime, AttemptFigures]],
    measures: dict[str, Measure],
    show: Callable[[float | None], object],
    gap: float | None = None,
) -> LineChart:
    lines = [
        Line(
            f"{label} {name}".strip() if len(groups) > 1 or not name else name,
            [measure(figures[at]) if at in figures else gap for at in moments],
        )
        for label, figures in groups.items()
        for name, measure in measures.items()
    ]
    return LineChart(id=id, title=title, at=moments, lines=lines, show=show)
