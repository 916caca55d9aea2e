"""A chart of lines over time. Its values are in a table too, for readers that cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from markupsafe import Markup

from peerd.web.pages import formats
from peerd.web.pages.charts.scales import time_label, time_marks, value_marks

WIDTH: Final = 640
HEIGHT: Final = 200
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 24
LOOKS: Final = 6
"""Colours of lines; lines beyond that share them."""


class Line(msgspec.Struct, frozen=True):
    """A line: its label, and a value for each moment; None where there is none."""

    label: str
    values: Sequence[float | None]


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
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return len(self.at) < 2 or not any(value for line in self.lines for value in line.values)

    @property
    def svg(self) -> Markup:
        """The picture."""
        begin, end = self.at[0], self.at[-1]
        span = max(1.0, (end - begin).total_seconds())
        highest = max((value for line in self.lines for value in line.values if value is not None), default=0.0)
        marks = value_marks(highest)
        inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

        def x(at: datetime) -> float:
            return LEFT + inner_width * (at - begin).total_seconds() / span

        def y(value: float) -> float:
            return TOP + inner_height * (1 - value / marks[-1])

        parts = [
            Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title">').format(
                WIDTH, HEIGHT, self.id
            ),
            Markup('<title id="{}-title">{}</title>').format(self.id, self._spoken()),
        ]
        for mark in marks:
            parts.append(
                Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                    LEFT, WIDTH - RIGHT, y(mark), y(mark)
                )
            )
            parts.append(
                Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                    LEFT - 6, y(mark) + 4, self.show(mark)
                )
            )
        for moment in time_marks(begin, end):
            label = time_label(moment, end - begin)
            parts.append(
                Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(x(moment), HEIGHT - 6, label)
            )
        for number, line in enumerate(self.lines):
            path = _path(
                [(x(at), None if value is None else y(value)) for at, value in zip(self.at, line.values, strict=True)]
            )
            parts.append(Markup('<path class="line s{}" d="{}"/>').format(number % LOOKS + 1, path))
        return Markup("").join([*parts, Markup("</svg>")])

    @property
    def heads(self) -> list[tuple[str, str]]:
        """The columns of the table of values, beside the time."""
        return [(formats.name(line.label), "number") for line in self.lines]

    @property
    def rows(self) -> list[tuple[datetime, list[object]]]:
        """The values, the newest first, for the table."""
        columns = [line.values for line in self.lines]
        return [
            (at, [self.show(column[number]) for column in columns]) for number, at in reversed(list(enumerate(self.at)))
        ]

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
