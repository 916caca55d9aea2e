"""The windows above the tables: a question, and what is only shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Question(ModalScreen[str | None]):
    """Asks before something is done: y does it, or Enter where a text is typed, which is the answer; Escape does not.

    Args:
        question: what will be done to what.
        effect: what that means.
        field: what is to be typed, if anything is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss('')", "Yes"),
        Binding("n,escape,q", "dismiss", "No"),
    ]

    def __init__(self, question: str, effect: str, field: str) -> None:
        super().__init__()
        self._question = question
        self._effect = effect
        self._field = field

    def compose(self) -> ComposeResult:
        """The texts, and the keys that answer."""
        with Vertical(classes="box"):
            yield Static(Text(self._question, "bold"))
            yield Static(Text(self._effect))
            if self._field:
                yield Input(placeholder=self._field, compact=True)
            yes, no = ("Enter", "Escape") if self._field else ("y", "n")
            yield Static(Text.assemble("\n", (yes, "bold"), " yes   ", (no, "bold"), " no"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The text is the answer."""
        self.dismiss(event.value.strip())


class Window(ModalScreen[None]):
    """Shows something, such as all keys, until it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, content: RenderableType) -> None:
        super().__init__()
        self._content = content

    def compose(self) -> ComposeResult:
        """The content; it can be scrolled."""
        with VerticalScroll(classes="box"):
            yield Static(self._content)


def keys_table(lines: Sequence[tuple[str, str]]) -> Table:
    """The keys and what they do; those without keys are titles."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for key, text in lines:
        table.add_row(*((key, Text(text)) if key else (Text(text, "underline"), "")))
    return table
