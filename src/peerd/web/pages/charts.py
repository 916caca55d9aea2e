"""Charts of lines over time, as SVG, and those of the time series that the client reads.

The values of a chart are in a table too, for readers that cannot see it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from markupsafe import Markup

from peerd.operate.figures import AttemptFigures, SeriesPoint
from peerd.store.queue_states import DepthPoint
from peerd.store.time_series import step_for
from peerd.web.pages import formats

WIDTH: Final = 400
HEIGHT: Final = 150
LEFT, RIGHT, TOP, BOTTOM = 72, 18, 8, 22
MOST_ROWS: Final = 30
"""Moments in the table of values."""
LOOKS: Final = 6
"""Colours of lines; lines beyond that share them."""


class Line(msgspec.Struct, frozen=True):
    """A line: its label, a value for each moment, None where there is none, and its colour if that has a meaning."""

    label: str
    values: Sequence[float | None]
    colour: str = ""


class _PlotArea(msgspec.Struct, frozen=True):
    """Where values are in the picture: between the first and the last moment, from 0 to the last mark."""

    begin: datetime
    end: datetime
    marks: Sequence[float]

    def x(self, at: datetime) -> float:
        span = max(1.0, (self.end - self.begin).total_seconds())
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - self.begin).total_seconds() / span

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.marks[-1])


class LineChart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over the same moments.

    Attributes:
        id: of its element on the page.
        title: what it shows, with the unit.
        at: the moments, in order.
        lines: what was at each of them.
        show: how a value is written.
    """

    id: str
    title: str
    at: Sequence[datetime]
    lines: Sequence[Line]
    show: Callable[[float | None], object]

    @property
    def colours(self) -> list[str]:
        """The class of each line in the style sheet."""
        return [line.colour or f"s{number % LOOKS + 1}" for number, line in enumerate(self.lines)]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return len(self.at) < 2 or not any(value for line in self.lines for value in line.values)

    @property
    def svg(self) -> Markup:
        """The picture."""
        highest = max((value for line in self.lines for value in line.values if value is not None), default=0.0)
        area = _PlotArea(begin=self.at[0], end=self.at[-1], marks=value_marks(highest))
        head = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title">').format(
            WIDTH, HEIGHT, self.id
        )
        title = Markup('<title id="{}-title">{}</title>').format(self.id, self._spoken())
        parts = [head, title, *self._value_axis(area), *self._time_axis(area), *self._paths(area), Markup("</svg>")]
        return Markup("").join(parts)

    def _value_axis(self, area: _PlotArea) -> Iterator[Markup]:
        grid = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
        label = Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>')
        for mark in area.marks:
            y = area.y(mark)
            yield grid.format(LEFT, WIDTH - RIGHT, y, y)
            yield label.format(LEFT - 6, y + 4, self.show(mark))

    def _time_axis(self, area: _PlotArea) -> Iterator[Markup]:
        label = Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
        for moment in time_marks(area.begin, area.end):
            yield label.format(area.x(moment), HEIGHT - 6, time_label(moment, area.end - area.begin))

    def _paths(self, area: _PlotArea) -> Iterator[Markup]:
        path = Markup('<path class="line {}" d="{}"/>')
        for colour, line in zip(self.colours, self.lines, strict=True):
            points = zip(
                map(area.x, self.at), (None if one is None else area.y(one) for one in line.values), strict=True
            )
            yield path.format(colour, _path(list(points)))

    @property
    def heads(self) -> list[tuple[str, str]]:
        """The columns of the table of values, beside the time."""
        return [(formats.name(line.label), "number") for line in self.lines]

    @property
    def rows(self) -> list[tuple[datetime, list[object]]]:
        """The newest values, the last first, for the table."""
        columns = [line.values for line in self.lines]
        newest = reversed(list(enumerate(self.at))[-MOST_ROWS:])
        return [(at, [self.show(column[number]) for column in columns]) for number, at in newest]

    def _spoken(self) -> str:
        latest = ", ".join(f"{line.label} {self.show(line.values[-1])}" for line in self.lines)
        return f"{self.title}, at last: {latest}"


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    """The commands of a path, with a gap where there is no value; a single point is a dash.

    >>> _path([(0, 1), (1, 2), (2, None), (3, 4)])
    'M0.0 1.0L1.0 2.0M3.0 4.0h1'
    """
    drawn: list[str] = []
    run = 0
    for (x, y), following in zip(points, [*points[1:], (0.0, None)], strict=True):
        if y is None:
            run = 0
            continue
        drawn.append(f"{'L' if run else 'M'}{x:.1f} {y:.1f}")
        run += 1
        if run == 1 and following[1] is None:
            drawn.append("h1")
    return "".join(drawn)


# ---------------------------------------------------------------- axes


STEPS: Final = tuple(
    60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080, 20_160)
)
"""Seconds between two marks of a time axis."""


def value_marks(highest: float, most: int = 4) -> list[float]:
    """Round values from 0 to the first that is not below the highest one, at equal distances of 1, 2 or 5.

    >>> value_marks(7), value_marks(0.4), value_marks(0)
    ([0, 2, 4, 6, 8], [0.0, 0.1, 0.2, 0.3, 0.4], [0, 1])
    """
    if highest <= 0 or not math.isfinite(highest):
        return [0, 1]
    power = 10.0 ** math.floor(math.log10(highest / most))
    step = next(power * part for part in (1, 2, 5, 10) if power * part * most >= highest)
    step = int(step) if step >= 1 else step
    return [round(step * number, 12) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def time_marks(begin: datetime, end: datetime, most: int = 6) -> list[datetime]:
    """Round moments in UTC within a time.

    >>> begin = datetime(2026, 11, 21, 9, 3, tzinfo=UTC)
    >>> [f"{at:%H:%M}" for at in time_marks(begin, begin + timedelta(hours=1))]
    ['09:10', '09:20', '09:30', '09:40', '09:50', '10:00']
    """
    span = max(1.0, (end - begin).total_seconds())
    step = next((step for step in STEPS if span / step <= most), STEPS[-1])
    first = math.ceil(begin.timestamp() / step) * step
    count = int((end.timestamp() - first) // step) + 1
    return [datetime.fromtimestamp(first + step * number, UTC) for number in range(max(0, count))]


def time_label(at: datetime, span: timedelta) -> str:
    """What a mark says: the time of day, or the day where marks are days apart."""
    return f"{at:%H:%M}" if span <= timedelta(days=1.5) else f"{at:%d %b}" if at.hour == 0 else f"{at:%d %b %H:%M}"


# ---------------------------------------------------------------- charts of time series


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
