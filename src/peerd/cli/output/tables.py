"""Tables for people: no lines, one row a thing, each cell on one line, and only the wide column is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP: Final = 2
"""Spaces between two columns, and before the first."""
LEAST: Final = 8
"""Columns that a wide column keeps, however narrow the terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the `wide` one has what room is left; `most` is the width that a column never exceeds.

    Where there is not enough room, columns with a `spare` are left out, those with the largest first.
    """

    title: str = ""
    right: bool = False
    wide: bool = False
    most: int | None = None
    spare: int = 0


class Rows:
    """Rows below their titles, indented. Rich would shrink all columns alike, until an id cannot be read."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> None:
        self._columns = columns
        self._rows = list(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        places = self._places(options.max_width - GAP)
        columns = [self._columns[place] for place in places]
        titled = any(column.title for column in columns)
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=titled, header_style="bright_black")
        for column, width in zip(columns, self._widths(places, options.max_width - GAP), strict=True):
            made.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=width,
            )
        for row in self._rows:
            made.add_row(*[row[place] for place in places])
        yield Padding(made, (0, 0, 0, GAP), expand=False)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """It takes what it is given."""
        return Measurement(0, options.max_width)

    def _places(self, room: int) -> list[int]:
        """The columns that there is room for."""
        places = list(range(len(self._columns)))
        while (spare := max(places, key=lambda place: self._columns[place].spare)) is not None:
            needed = sum(self._least(place) for place in places) + GAP * (len(places) - 1)
            if needed <= room or not self._columns[spare].spare:
                break
            places.remove(spare)
        return places

    def _widths(self, places: Sequence[int], room: int) -> list[int]:
        fixed = sum(self._natural(place) for place in places if not self._columns[place].wide)
        left = room - fixed - GAP * (len(places) - 1)
        return [
            max(min(self._natural(place), left), self._least(place))
            if self._columns[place].wide
            else self._natural(place)
            for place in places
        ]

    def _least(self, place: int) -> int:
        natural = self._natural(place)
        return min(LEAST, natural) if self._columns[place].wide else natural

    def _natural(self, place: int) -> int:
        column = self._columns[place]
        cells = [cell_len(column.title), *[row[place].cell_len for row in self._rows]]
        return min(max(cells), column.most or max(cells))


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> Rows:
    """Rows below their titles."""
    return Rows(columns, rows)


def facts(pairs: Iterable[tuple[str, Text | str]]) -> Padding:
    """Names and values below each other."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    made.add_column(style="bright_black", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, value)
    return Padding(made, (0, 0, 0, GAP), expand=False)
