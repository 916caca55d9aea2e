"""Which columns of a table are shown, and how wide each is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from peerd.cli.output.tables import Column, fit_columns
from peerd.cli.top.views import TopRow


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
        """Of the columns that are shown."""
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
