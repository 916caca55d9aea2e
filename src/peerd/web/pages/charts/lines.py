"""A chart of lines over time. Its values are in a table too, for readers that cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from markupsafe import Markup

from peerd.web.pages import formats
from peerd.web.pages.charts.scales import time_label, time_marks, value_marks

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
