"""Tables for people: no lines, one row a thing, each cell on one line, cut where the terminal ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.padding import Padding
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `wide` ones share what room is left; `most` is the width that a column never exceeds."""

    title: str
    right: bool = False
    wide: bool = False
    most: int | None = None


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> Padding:
    """Rows below their titles, indented."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bright_black", expand=False)
    for column in columns:
        made.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=column.most,
            ratio=None,
            min_width=None if column.wide else min(len(column.title), column.most or len(column.title)),
        )
    for row in rows:
        made.add_row(*row)
    return Padding(made, (0, 0, 0, 2), expand=False)


def facts(pairs: Iterable[tuple[str, Text | str]]) -> Padding:
    """Names and values below each other."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bright_black", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, value)
    return Padding(made, (0, 0, 0, 2), expand=False)
