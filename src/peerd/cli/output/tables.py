"""Tables without rules: one line for each row, and the columns on the right give way before those on the left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peerd.cli.output.formatting import to_text
from peerd.domain.quoting import escape_line

GAP: Final = 2
"""Spaces between two columns, and before the first."""
MIN_WIDTH: Final = 8
"""The width to which a column is cut in a narrow terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its title.
        right: whether it is aligned to the right.
        wide: whether it is cut before all others where there is not enough room.
        max_width: the width that it never exceeds.
        drop_priority: columns with one are left out where there is not enough room, the largest first.
    """

    title: str = ""
    right: bool = False
    wide: bool = False
    max_width: int | None = None
    drop_priority: int = 0


def right(title: str, *, drop_priority: int = 0) -> Column:
    """A column that is aligned to the right."""
    return Column(title, right=True, drop_priority=drop_priority)


def wide(title: str) -> Column:
    """A column that is cut before all others."""
    return Column(title, wide=True)


class AlignedTable:
    """Rows below their titles, indented; the first column is never cut.

    Rich shrinks all columns alike, until an id cannot be read; therefore the widths are computed here.

    Args:
        columns: their properties, or titles alone.
        rows: cells; plain strings are made harmless for a terminal.
    """

    def __init__(self, columns: Iterable[Column | str], rows: Iterable[Iterable[Text | str]]) -> None:
        self._columns = [Column(column) if isinstance(column, str) else column for column in columns]
        self._rows = [[cell if isinstance(cell, Text) else Text(escape_line(cell)) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        natural = [self._natural_width(index) for index in range(len(self._columns))]
        widths = fit_columns(self._columns, natural, options.max_width - GAP)
        rich_table = Table(
            box=None,
            pad_edge=False,
            padding=(0, GAP, 0, 0),
            show_header=any(self._columns[index].title for index in widths),
            header_style="bright_black",
        )
        for index, width in widths.items():
            column = self._columns[index]
            justify: JustifyMethod = "right" if column.right else "left"
            rich_table.add_column(column.title, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
        for row in self._rows:
            rich_table.add_row(*[row[index] for index in widths])
        yield Padding(rich_table, (0, 0, 0, GAP), expand=False)

    def _natural_width(self, index: int) -> int:
        column = self._columns[index]
        widest = max([cell_len(column.title), *[row[index].cell_len for row in self._rows]])
        return min(widest, column.max_width or widest)


def fit_columns(columns: Sequence[Column], natural: Sequence[int], available: int) -> dict[int, int]:
    """The widths of the columns that are shown, by their indexes.

    Columns are left out by their `drop_priority`, then wide ones are cut, then others from the right.

    Args:
        columns: all of them.
        natural: the width of each, if there is room enough.
        available: the width of all together, with `GAP` between two.

    >>> fit_columns([Column("id"), wide("note"), Column("node", drop_priority=1)], [4, 30, 6], 40)
    {0: 4, 1: 26, 2: 6}
    >>> fit_columns([Column("id"), wide("note"), Column("node", drop_priority=1)], [4, 30, 6], 20)
    {0: 4, 1: 14}
    """
    widths = dict(enumerate(natural))
    for index in sorted(widths, key=lambda index: -columns[index].drop_priority):
        if columns[index].drop_priority and _min_total(columns, widths) > available:
            del widths[index]
    excess = sum(widths.values()) + GAP * (len(widths) - 1) - available
    for index in sorted(list(widths)[1:], key=lambda index: (columns[index].wide, index), reverse=True):
        cut = max(min(excess, widths[index] - MIN_WIDTH), 0)
        widths[index] -= cut
        excess -= cut
    return widths


def _min_total(columns: Sequence[Column], widths: Mapping[int, int]) -> int:
    needed = [min(MIN_WIDTH, width) if columns[index].wide else width for index, width in widths.items()]
    return sum(needed) + GAP * (len(needed) - 1)


def make_key_value_table(pairs: Iterable[tuple[str, Text | str]]) -> Padding:
    """Names and values below each other."""
    rich_table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    rich_table.add_column(style="bright_black", no_wrap=True)
    rich_table.add_column(overflow="fold")
    for name, value in pairs:
        rich_table.add_row(name, to_text(value))
    return Padding(rich_table, (0, 0, 0, GAP), expand=False)
