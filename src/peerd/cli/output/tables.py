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
MIN_WIDTH: Final = 8
"""Columns that a wide column keeps, however narrow the terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the `wide` one has what room is left; `max_width` is the width that a column never exceeds.

    Where there is not enough room, columns with a `drop_priority` are left out, those with the largest first.
    """

    title: str = ""
    right: bool = False
    wide: bool = False
    max_width: int | None = None
    drop_priority: int = 0


class AlignedTable:
    """Rows below their titles, indented. Rich would shrink all columns alike, until an id cannot be read."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> None:
        self._columns = columns
        self._rows = list(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        indexes = self._visible_columns(options.max_width - GAP)
        columns = [self._columns[index] for index in indexes]
        titled = any(column.title for column in columns)
        rich_table = Table(
            box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=titled, header_style="bright_black"
        )
        for column, width in zip(columns, self._column_widths(indexes, options.max_width - GAP), strict=True):
            rich_table.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=width,
            )
        for row in self._rows:
            rich_table.add_row(*[row[index] for index in indexes])
        yield Padding(rich_table, (0, 0, 0, GAP), expand=False)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """It takes what it is given."""
        return Measurement(0, options.max_width)

    def _visible_columns(self, available_width: int) -> list[int]:
        """The columns that there is room for."""
        indexes = list(range(len(self._columns)))
        while (drop_priority := max(indexes, key=lambda index: self._columns[index].drop_priority)) is not None:
            needed = sum(self._min_width(index) for index in indexes) + GAP * (len(indexes) - 1)
            if needed <= available_width or not self._columns[drop_priority].drop_priority:
                break
            indexes.remove(drop_priority)
        return indexes

    def _column_widths(self, indexes: Sequence[int], available_width: int) -> list[int]:
        fixed = sum(self._natural_width(index) for index in indexes if not self._columns[index].wide)
        left = available_width - fixed - GAP * (len(indexes) - 1)
        return [
            max(min(self._natural_width(index), left), self._min_width(index))
            if self._columns[index].wide
            else self._natural_width(index)
            for index in indexes
        ]

    def _min_width(self, index: int) -> int:
        natural = self._natural_width(index)
        return min(MIN_WIDTH, natural) if self._columns[index].wide else natural

    def _natural_width(self, index: int) -> int:
        column = self._columns[index]
        cells = [cell_len(column.title), *[row[index].cell_len for row in self._rows]]
        return min(max(cells), column.max_width or max(cells))


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> AlignedTable:
    """Rows below their titles."""
    return AlignedTable(columns, rows)


def make_key_value_table(pairs: Iterable[tuple[str, Text | str]]) -> Padding:
    """Names and values below each other."""
    rich_table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    rich_table.add_column(style="bright_black", no_wrap=True)
    rich_table.add_column(overflow="fold")
    for name, value in pairs:
        rich_table.add_row(name, value)
    return Padding(rich_table, (0, 0, 0, GAP), expand=False)
