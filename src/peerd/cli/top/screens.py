"""The windows above the tables: a question, and the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static


class Question(ModalScreen[bool]):
    """Asks before something is done: y does it, and n, q and Escape do not.

    Args:
        question: what will be done to what.
        effect: what that means.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, effect: str) -> None:
        super().__init__()
        self._question = question
        self._effect = effect

    def compose(self) -> ComposeResult:
        """The texts, and the keys that answer."""
        with Vertical(classes="box"):
            yield Static(Text(self._question, "bold"))
            yield Static(Text(self._effect))
            yield Static(Text.assemble("\n", ("y", "bold"), " yes   ", ("n", "bold"), " no"))


class Keys(ModalScreen[None]):
    """All keys.

    Args:
        lines: the keys and what they do; those without keys are titles.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, lines: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """A table of two columns."""
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for key, text in self._lines:
            table.add_row(*((key, Text(text)) if key else (Text(text, "underline"), "")))
        with VerticalScroll(classes="box"):
            yield Static(table)
