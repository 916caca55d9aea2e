"""The windows above the tables: a question, what is only shown, and one task with its log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, RichLog, Static

from peerd.cli.errors import CommandError
from peerd.cli.output import sanitize
from peerd.cli.tasks.log_lines import LineRenderer
from peerd.cli.tasks.show import node_names, render_task, task_title
from peerd.cli.top.reading import run_in_background
from peerd.cli.top.row_actions import ACTIONS, TopAction
from peerd.cli.top.widgets import MessageLine
from peerd.domain.log_line import TaskLogLine
from peerd.domain.task import Attempt, Task
from peerd.operate.client import Client


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


# ---------------------------------------------------------------- one task


PAUSE: Final = 2.0
"""Seconds between two readings."""
LOG_LINES: Final = 500
"""Lines that are kept, and read at once."""

AskBefore = Callable[[TopAction, str, str], None]
"""Asks whether an action is done to the key of a row, which has a name, and does it."""


class TaskReading(msgspec.Struct, frozen=True):
    """A task, its attempts, and the lines that are new since the reading before."""

    task: Task
    attempts: Sequence[Attempt]
    lines: Sequence[TaskLogLine]
    names: Mapping[int, str]
    now: datetime
    skipped: int
    """Earlier lines that the first reading has left out."""
    has_more: bool


class TaskScreen(ModalScreen[None]):
    """A task, and its log.

    Args:
        client: what it reads with.
        task_id: the task's.
        ask: see `AskBefore`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *[Binding(action.key, f"act({action.key!r})", action.label) for action in ACTIONS["tasks"]],
        Binding("tab", "app.focus_next", "Facts / log"),
        Binding("escape,q", "dismiss", "Back"),
    ]

    def __init__(self, client: Client, task_id: int, ask: AskBefore) -> None:
        super().__init__()
        self._client = client
        self._task_id = task_id
        self._ask = ask
        self._task_name = f"task {task_id}"
        self._after: str | None = None
        self._is_reading = False
        self._problem = ""
        self._renderer = LineRenderer(has_gaps=False)
        self._lines: deque[Text] = deque(maxlen=LOG_LINES)

    def compose(self) -> ComposeResult:
        """The facts, below them the log, and the keys."""
        with VerticalScroll(id="facts"):
            yield Static("reading …", id="task")
        yield RichLog(id="log", max_lines=LOG_LINES, wrap=True, auto_scroll=False, min_width=1)
        yield MessageLine()
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Read now, and again after each pause."""
        self.query_one("#log").border_title = "log"
        self.query_one("#log").focus()
        self.read()
        self.set_interval(PAUSE, self.read)

    # ---------------------------------------------------------------- reading

    def read(self) -> None:
        """Read, unless a reading goes on."""
        if not self._is_reading:
            self._is_reading = True
            run_in_background(self._read, self._receive, self._fail, self)

    def _read(self) -> TaskReading:
        """In a thread."""
        tasks = self._client.tasks
        task, attempts, skipped = tasks.get(self._task_id), tasks.attempts(self._task_id), 0
        if self._after is None:
            last = tasks.last_logs(self._task_id, limit=LOG_LINES)
            lines, skipped, has_more = last.items, last.count - len(last.items), False
        else:
            page = tasks.logs(self._task_id, after=self._after, limit=LOG_LINES)
            lines, has_more = page.items, page.has_more
        names, now = node_names(self._client), self._client.now()
        return TaskReading(task, attempts, lines, names, now, skipped, has_more)

    def _receive(self, reading: TaskReading) -> None:
        self._is_reading = False
        self._task_name = f"task {reading.task.id} ({task_title(reading.task)})"
        self._show_problem("")
        self._show_facts(render_task(reading.task, reading.attempts, reading.names, reading.now))
        if reading.skipped:
            self._write(
                [Text(f"… {reading.skipped:,} earlier lines: peerd tasks logs {self._task_id}", "bright_black")]
            )
        if reading.lines:
            self._after = reading.lines[-1].cursor
            self._write([text for line in reading.lines for text in self._renderer.render(line)])
        if reading.has_more:
            self.read()

    def _fail(self, error: CommandError) -> None:
        """The task is gone, or cannot be read now: what was read stays, below the reason."""
        self._is_reading = False
        self._show_problem(str(error))

    # ---------------------------------------------------------------- showing

    def _show_facts(self, facts: RenderableType) -> None:
        """A layout would send the whole screen: there is one only when the number of lines is another one."""
        widget = self.query_one("#task", Static)
        options = self.app.console.options.update_width(max(widget.size.width, 1))
        height = len(self.app.console.render_lines(facts, options))
        widget.update(facts, layout=height != widget.size.height)

    def _show_problem(self, text: str) -> None:
        if text != self._problem:
            self._problem = text
            log = self.query_one("#log", RichLog)
            log.set_class(bool(text), "old")
            log.border_title = Text(sanitize(text) or "log", "bold red" if text else "")

    def _write(self, lines: Sequence[Text]) -> None:
        """Add lines; the end stays in view unless it was left."""
        self._lines.extend(lines)
        self._add(lines, follow=self._is_at_end())

    def on_resize(self, _: Resize) -> None:
        """Wrap the log for the new width."""
        self.call_after_refresh(self._rewrite)

    def _rewrite(self) -> None:
        follow = self._is_at_end()
        self.query_one("#log", RichLog).clear()
        self._add(self._lines, follow=follow)

    def _is_at_end(self) -> bool:
        log = self.query_one("#log", RichLog)
        return log.scroll_offset.y >= log.max_scroll_y

    def _add(self, lines: Collection[Text], *, follow: bool) -> None:
        """Add lines. Only the last one scrolls: it does so later, when a key may have left the end already."""
        log = self.query_one("#log", RichLog)
        for number, line in enumerate(lines, 1):
            is_last = number == len(lines)
            log.write(line, width=log.scrollable_content_region.width or None, scroll_end=follow and is_last)

    # ---------------------------------------------------------------- keys

    def action_act(self, key: str) -> None:
        """Ask for an action on the task."""
        self._ask(next(action for action in ACTIONS["tasks"] if action.key == key), str(self._task_id), self._task_name)
