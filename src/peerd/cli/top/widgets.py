"""The table of ``peerd top`` with the widths of its columns, and the line of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.geometry import Region
from textual.timer import Timer
from textual.widgets import DataTable, Static

from peerd.cli.output import Column, fit_columns, sanitize
from peerd.cli.top.views import TopRow


class RowTable(DataTable[Text]):
    """A table that is filled again and again. Its rows have no keys: they are the lines of the screen.

    Textual's table draws itself anew for each cell that changes: 13,000 bytes at 200×60, which a slow connection
    notices. Here only the region of the cell is drawn.

    Args:
        options: those of every widget, and ``cell_padding``.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", "First row", show=False),
        Binding("end", "scroll_bottom", "Last row", show=False),
    ]

    def __init__(self, **options: Any) -> None:
        self._draws_all = True
        self._lines: list[list[Text]] = []
        super().__init__(cursor_type="row", **options)

    def make_columns(self, columns: Sequence[tuple[Text, int]]) -> None:
        """Begin anew, without rows, with these titles and widths."""
        self.clear(columns=True)
        self._lines = []
        for title, width in columns:
            self.add_column(title, width=width)

    def fill(self, lines: Sequence[Sequence[Text]]) -> None:
        """Show these rows; the cursor and the place in the table stay where they are."""
        for number, (before, line) in enumerate(zip(self._lines, lines, strict=False)):
            for place, (old, new) in enumerate(zip(before, line, strict=True)):
                if old != new:
                    self._replace(Coordinate(number, place), new)
        for line in lines[len(self._lines) :]:
            self.add_row(*line)
        for _ in self._lines[len(lines) :]:
            self.remove_row(self.coordinate_to_cell_key(Coordinate(len(lines), 0)).row_key)
        self._lines = [list(line) for line in lines]

    def _replace(self, coordinate: Coordinate, text: Text) -> None:
        self._draws_all = False
        try:
            self.update_cell_at(coordinate, text)
        finally:
            self._draws_all = True
        self.refresh_coordinate(coordinate)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Draw these regions, or everything."""
        if regions or self._draws_all:
            super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        return self


# ---------------------------------------------------------------- the widths of its columns


class ColumnLayout:
    """The layout of the table that is shown.

    Columns become wider with their cells, and narrower only in another table or terminal: otherwise they would move
    whenever a row comes or goes.
    """

    def __init__(self) -> None:
        self._natural: list[int] = []
        self._widths: dict[int, int] = {}
        self._titles: list[Text] = []

    @property
    def shown(self) -> list[int]:
        """The indexes of the columns that are shown."""
        return list(self._widths)

    @property
    def titles_and_widths(self) -> list[tuple[Text, int]]:
        """The titles and widths of the columns that are shown."""
        return [(self._titles[index], width) for index, width in self._widths.items()]

    def forget(self) -> None:
        """Begin anew: the next rows have other columns, or another room."""
        self._natural, self._widths = [], {}

    def fit(self, columns: Sequence[Column], titles: Sequence[Text], rows: Sequence[TopRow], available: int) -> bool:
        """Compute the widths, and return whether widths or titles have changed.

        Args:
            columns: of the table.
            titles: of each column, as they are shown.
            rows: with a cell for each column; a column without any text is left out.
            available: cells of the terminal for a line.
        """
        self._widen(columns, titles, rows, available)
        filled = [index for index, width in enumerate(self._natural) if width]
        fitted = fit_columns([columns[one] for one in filled], [self._natural[one] for one in filled], available)
        widths = {filled[place]: width for place, width in fitted.items()}
        has_changed = (widths, titles) != (self._widths, self._titles)
        self._widths, self._titles = widths, list(titles)
        return has_changed

    def _widen(self, columns: Sequence[Column], titles: Sequence[Text], rows: Sequence[TopRow], available: int) -> None:
        self._natural = self._natural or [0] * len(columns)
        for index, column in enumerate(columns):
            widest = max((row.cells[index].cell_len for row in rows), default=1)
            if widest:
                widest = max(titles[index].cell_len, min(widest, column.max_width or widest))
                self._natural[index] = max(self._natural[index], available if column.wide else widest)


# ---------------------------------------------------------------- messages


SHOWN_FOR: Final = 15.0
"""Seconds."""


class MessageLine(Static):
    """Shows a message for a while; it takes no room otherwise."""

    _timer: Timer | None = None

    def say(self, text: str, style: str) -> None:
        """Show a text of one line or more."""
        self.update(Text(" ".join(sanitize(text).split()), style))
        self.display = True
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(SHOWN_FOR, self.hide)

    def hide(self) -> None:
        """Take the message away."""
        self.display = False

    def on_mount(self) -> None:
        """Begin without a message."""
        self.display = False
