"""What is drawn again and again, in a terminal whose width changes."""

from __future__ import annotations

from rich.console import Console


class ResizeDetector:
    """Clears a terminal that was resized.

    What had been drawn for another width was wrapped or cut by the terminal, as it likes: nobody knows how many rows it
    has now, and so it cannot be drawn over.

    Args:
        console: of the terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = console.width

    def clear(self) -> bool:
        """Clear the terminal if its width is another one than before; return whether it was."""
        if self._console.width == self._width:
            return False
        self._width = self._console.width
        self._console.clear()
        return True
