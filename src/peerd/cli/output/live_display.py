"""A display that is redrawn: progress bars and tables below lines that stay."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

REPEATED_LINES = 10
"""Lines that are printed again after the terminal was cleared."""


class LiveDisplay(AbstractContextManager["LiveDisplay"]):
    """Lines that stay and, in a terminal, a picture below them that each update replaces.

    A terminal that is resized wraps or cuts what was drawn for the old width, so the number of rows to overwrite is
    unknown. After a resize the terminal is cleared and the last lines are printed again.

    Args:
        console: where it is shown.
        silent: show nothing; for commands that print JSON.
        transient: erase the picture at the end.
    """

    def __init__(self, console: Console, *, silent: bool = False, transient: bool = True) -> None:
        self._console = console
        self._silent = silent
        self._live = Live(console=console, auto_refresh=False, transient=transient)
        self._width = console.width
        self._last_lines: deque[tuple[Text, bool]] = deque(maxlen=REPEATED_LINES)
        self.is_terminal = console.is_terminal and console.is_interactive and not silent
        """Whether a picture can be redrawn there; in a dumb terminal (`TERM=dumb`) it cannot, and lines are printed."""

    def __enter__(self) -> Self:
        if not self._silent:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def print(self, line: Text, *, wrap: bool = False) -> None:
        """Print a line that stays; a terminal cuts it at its width unless it may wrap."""
        if self._silent:
            return
        if not self.is_terminal:
            self._console.print(line, soft_wrap=True)
            return
        self._last_lines.append((line, wrap))
        self._print_in_terminal(line, wrap=wrap)

    def update(self, picture: RenderableType) -> None:
        """Replace the picture."""
        if self._silent:
            return
        if self._console.width != self._width:
            self._width = self._console.width
            self._console.clear()
            for line, wrap in self._last_lines:
                self._print_in_terminal(line, wrap=wrap)
        self._live.update(picture, refresh=True)

    def _print_in_terminal(self, line: Text, *, wrap: bool) -> None:
        self._console.print(line, no_wrap=not wrap, overflow=None if wrap else "ellipsis")


def render_progress_bar(progress: float | None, width: int) -> Text:
    """A bar and its percentage; dots where no progress was reported."""
    if progress is None:
        return Text("·" * width + "    –", "bright_black")
    filled = round(min(max(progress, 0.0), 1.0) * width)
    return Text.assemble(
        ("━" * filled, "green"), ("━" * (width - filled), "bright_black"), (f" {progress:4.0%}", "yellow")
    )
