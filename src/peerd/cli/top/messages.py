"""The line that says what was done, or why not."""

from __future__ import annotations

from typing import Final

from rich.text import Text
from textual.timer import Timer
from textual.widgets import Static

from peerd.cli.output.formatting import sanitize

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
