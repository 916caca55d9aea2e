"""The table widget: its cursor is a row, and a change of a cell sends that cell alone to the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.geometry import Region
from textual.widgets import DataTable


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
