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
    """A column: the `wide` one has what room is left; `most` is the width that a column never exceeds."""

    title: str = ""
    right: bool = False
    wide: bool = False
    most: int | None = None


class Rows:
    """Rows below their titles, indented. Rich would shrink all columns alike, until an id cannot be read."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> None:
        self._columns = columns
        self._rows = list(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        titled = any(column.title for column in self._columns)
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=titled, header_style="bright_black")
        for column, width in zip(self._columns, self._widths(options.max_width - GAP), strict=True):
            made.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=width,
            )
        for row in self._rows:
            made.add_row(*row)
        yield Padding(made, (0, 0, 0, GAP), expand=False)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """It takes what it is given."""
        return Measurement(0, options.max_width)

    def _widths(self, room: int) -> list[int]:
        widths = [self._natural(place, column) for place, column in enumerate(self._columns)]
        for place, column in enumerate(self._columns):
            if column.wide:
                others = sum(widths) - widths[place] + GAP * (len(widths) - 1)
                widths[place] = max(min(widths[place], room - others), min(LEAST, widths[place]))
        return widths

    def _natural(self, place: int, column: Column) -> int:
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
