"""The screen of ``peerd top``: a summary, one of four tables, and the keys."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial
from typing import ClassVar, Final

from rich.console import RenderableType
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Input, Static

from peerd.cli.errors import CommandError
from peerd.cli.output import GAP, format_elapsed, sanitize
from peerd.cli.top.reading import Reading, read_cluster, run_in_background
from peerd.cli.top.row_actions import ACTIONS, TopAction
from peerd.cli.top.screens import Question, TaskScreen, Window, keys_table
from peerd.cli.top.summary import summarize
from peerd.cli.top.views import VIEWS, TopRow, TopView, begins_with_greatest
from peerd.cli.top.widgets import ColumnLayout, MessageLine, RowTable
from peerd.domain.lifecycle import Status
from peerd.operate.client import Client

SLOW: Final = 5.0
"""Seconds after which a reading without an answer is mentioned."""
SCROLLBAR: Final = 1
STATUSES: Final = (
    Status.WORKING,
    Status.PENDING,
    Status.SCHEDULED,
    Status.WAITING,
    Status.FAILURE,
    Status.DEAD,
    Status.BURIED,
    Status.CANCELED,
    Status.DONE,
    None,
)
"""The statuses whose tasks are shown, one after another; None: the newest of all."""
KEYS: Final = (
    ("", "Tables"),
    ("1 2 3 4", "tasks, queues, nodes, alerts"),
    ("Tab, Shift+Tab", "the next table, the one before"),
    ("t T", "tasks of the next status, of the one before"),
    ("s S", "sort by the next column; in the other direction"),
    ("/", "filter by a part of any cell; Escape removes it"),
    ("↑ ↓ Page Home End", "rows"),
    ("Enter", "a task with its log"),
    ("Space", "read now"),
    ("Ctrl+Z", "suspend; fg comes back"),
    ("q, Ctrl+C", "quit"),
)


def _action_bindings() -> list[BindingType]:
    return [
        Binding(action.key, f"act('{view}', {number})", action.label)
        for view, actions in ACTIONS.items()
        for number, action in enumerate(actions)
    ]


class TopApplication(App[None]):
    """The application.

    Args:
        client: what it reads and acts with.
        pause: seconds between two readings.
        source: what it reads from, for its first line.
    """

    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *_action_bindings(),
        *[Binding(str(number), f"show('{view.id}')", view.label, show=False) for number, view in enumerate(VIEWS, 1)],
        Binding("tab", "next_view(1)", "Next table", show=False, priority=True),
        Binding("shift+tab", "next_view(-1)", "Table before", show=False, priority=True),
        Binding("t", "next_status(1)", "Status", show=False),
        Binding("T", "next_status(-1)", "Status before", show=False),
        Binding("s", "sort", "Sort", show=False),
        Binding("S", "turn", "Other direction", show=False),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "unfilter", "No filter", show=False),
        Binding("space", "read", "Read", show=False),
        Binding("question_mark", "keys", "Keys"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False),
    ]

    def __init__(self, client: Client, pause: float, source: str) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # the terminal's own colours, on any background
        self.failure: CommandError | None = None
        """Why the first reading failed."""
        self._client = client
        self._pause = pause
        self._source = source
        self._view: TopView = VIEWS[0]
        self._status: Status | None = STATUSES[0]
        self._sorted_by: dict[str, tuple[int, bool]] = {}
        self._filter_text = ""
        self._reading: Reading | None = None
        self._reading_since: float | None = None
        self._answered_at = time.monotonic()
        self._silence: str | None = None
        self._rows: list[TopRow] = []
        self._column_layout = ColumnLayout()

    def compose(self) -> ComposeResult:
        """Summary, the names of the tables, the table, the filter, a message and the keys."""
        with Vertical():
            yield Static("reading …", id="summary")
            yield Static(id="views")
            yield RowTable(id="table", cell_padding=GAP // 2)
            yield Input(id="filter", placeholder="a part of any cell; Enter keeps it, Escape removes it", compact=True)
            yield MessageLine()
            yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begin to read; a signal to end restores the terminal."""
        self.title = "peerd top"
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.query_one(RowTable).focus()
        self.action_read()
        self.set_interval(self._pause, self.action_read)
        self.set_interval(1.0, self._watch_reading)

    # ---------------------------------------------------------------- reading

    def action_read(self) -> None:
        """Read now, unless a reading goes on."""
        if self._reading_since is None:
            self._reading_since = time.monotonic()
            read = partial(read_cluster, self._client, self._status, is_first=self._reading is None)
            run_in_background(read, self._receive, self._lose, self)

    def _lose(self, error: CommandError) -> None:
        self._reading_since = None
        if self._reading is None:
            self.failure = error
            self.exit()
            return
        self._describe_silence(str(error))

    def _watch_reading(self) -> None:
        """A source that neither answers nor refuses."""
        if self._reading_since is not None and time.monotonic() - self._reading_since > SLOW:
            self._describe_silence("it does not answer")

    def _describe_silence(self, reason: str) -> None:
        age = format_elapsed(time.monotonic() - self._answered_at)
        self._silence = f" what you see is {age} old: {reason} "
        self._refresh_summary()

    def _receive(self, reading: Reading) -> None:
        self._reading_since = None
        self._answered_at = time.monotonic()
        self._silence = None
        if reading.status is not self._status:  # another one was chosen meanwhile
            self.action_read()
            return
        self._reading = reading
        self._refresh_summary()
        self._refresh_table()
        if reading.is_first:
            self.action_read()

    # ---------------------------------------------------------------- showing

    def _refresh_summary(self) -> None:
        if self._reading is not None:
            lines = summarize(self._reading, self._source, self.size.width - 2, self._silence)
            self._update("#summary", lines)

    def _refresh_table(self) -> None:
        if self._reading is None or self._reading.status is not self._status:
            return
        rows = [row for row in self._view.rows(self._reading) if row.contains(self._filter_text)]
        if self._view.id in self._sorted_by:
            column, is_descending = self._sorted_by[self._view.id]
            rows.sort(key=lambda row: row.order[column], reverse=is_descending)
        current = self._current_row()
        table = self.query_one(RowTable)
        if self._column_layout.fit(self._view.columns, self._titles(), rows, self.size.width - SCROLLBAR - GAP):
            self._rows = []
            table.make_columns(self._column_layout.titles_and_widths)
        table.fill([[row.cells[column] for column in self._column_layout.shown] for row in rows])
        self._rows = rows
        keys = [row.key for row in rows]
        if current is not None and current.key in keys and table.cursor_row != keys.index(current.key):
            table.move_cursor(row=keys.index(current.key), animate=False)
        self._show_names(len(rows))

    def _titles(self) -> list[Text]:
        sorted_by, is_descending = self._sorted_by.get(self._view.id, (None, False))
        titles = []
        for number, column in enumerate(self._view.columns):
            mark = "" if number != sorted_by else " ▼" if is_descending else " ▲"
            titles.append(Text(column.title + mark, "bold", justify="right" if column.right else "left"))
        return titles

    def _show_names(self, count: int) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, view in enumerate(VIEWS, 1):
            text.append(f" {number} {view.label} ", "reverse bold" if view is self._view else "").append(" ")
        more = ""
        if self._view.id == "tasks":
            text.append(f" t {self._status or 'newest'} ", "bold")
            more = "+" if self._reading is not None and self._reading.has_more_tasks else ""
        noun = self._view.noun if count == 1 and not more else f"{self._view.noun}s"
        text.append(f" {count}{more} {noun}" if count else f" {self._view.empty}", "bright_black")
        if self._filter_text:
            text.append(f"  /{sanitize(self._filter_text)}", "yellow")
        self._update("#views", text)

    def _show_view(self, view: TopView) -> None:
        """Show a table with what was read last."""
        is_another = view is not self._view
        self._view = view
        self._start_layout()
        self._refresh_table()
        if is_another:
            self.query_one(RowTable).move_cursor(row=0, animate=False)
            self.refresh_bindings()

    def _start_layout(self) -> None:
        """Forget widths and rows: the next ones have other columns, or another room."""
        self._column_layout.forget()
        self._rows = []

    def on_resize(self) -> None:
        """Lay everything out for the new size."""
        current = self._current_row()
        self._start_layout()
        self._refresh_summary()
        self._refresh_table()
        keys = [row.key for row in self._rows]
        if current is not None and current.key in keys:
            self.query_one(RowTable).move_cursor(row=keys.index(current.key), animate=False)
        # A terminal that becomes smaller and at once as large as before has lost cells that Textual takes for drawn.
        self.call_after_refresh(self.screen.refresh, repaint=True)

    def _update(self, selector: str, text: Text) -> None:
        """Change a text, if it is another one."""
        widget = self.query_one(selector, Static)
        if widget.content != text:
            has_other_height = str(widget.content).count("\n") != text.plain.count("\n")
            widget.update(text, layout=has_other_height)  # a layout would send the whole screen

    def say(self, text: str, style: str = "") -> None:
        """Show a message on every screen that is open."""
        for screen in self.screen_stack:
            for line in screen.query(MessageLine):
                line.say(text, style)

    # ---------------------------------------------------------------- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Actions of the table that is shown; Tab is of the tables only."""
        match action:
            case "act":
                return bool(parameters) and parameters[0] == self._view.id
            case "next_view":
                return len(self.screen_stack) == 1 and not isinstance(self.focused, Input)
            case "next_status":
                return self._view.id == "tasks"
            case _:
                return True

    def action_show(self, name: str) -> None:
        """Show one of the tables."""
        self._show_view(next(view for view in VIEWS if view.id == name))

    def action_next_view(self, step: int) -> None:
        """The next table, or the one before."""
        self._show_view(VIEWS[(VIEWS.index(self._view) + step) % len(VIEWS)])

    def action_next_status(self, step: int) -> None:
        """Tasks of the next status, or of the one before."""
        self._status = STATUSES[(STATUSES.index(self._status) + step) % len(STATUSES)]
        self.query_one(RowTable).make_columns([])
        self._start_layout()
        self._update("#views", Text(f" tasks: {self._status or 'newest'} …", "bold"))
        self.action_read()

    def action_sort(self) -> None:
        """By the next column that is shown; numbers and times with the greatest first."""
        shown = self._column_layout.shown or [0]
        before = self._sorted_by.get(self._view.id, (-1, False))[0]
        column = next((number for number in shown if number > before), shown[0])
        self._sorted_by[self._view.id] = column, begins_with_greatest(self._view.columns[column])
        self._refresh_table()

    def action_turn(self) -> None:
        """Sort in the other direction."""
        column, is_descending = self._sorted_by.get(self._view.id, (0, False))
        self._sorted_by[self._view.id] = column, not is_descending
        self._refresh_table()

    def action_filter(self) -> None:
        """Type a filter."""
        field = self.query_one("#filter", Input)
        field.add_class("open")
        field.focus()

    def action_unfilter(self) -> None:
        """Show all rows."""
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    @on(Input.Changed, "#filter")
    def filter_rows(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._filter_text = event.value
        self._refresh_table()

    @on(Input.Submitted, "#filter")
    def keep_filter(self, _: Input.Submitted) -> None:
        """Keep the filter, and go back to the rows."""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("open")
        self.query_one(RowTable).focus()

    def action_keys(self) -> None:
        """Show all keys."""
        own = [(action.key, f"{action.label.lower()}: {action.effect}") for action in ACTIONS[self._view.id]]
        titles = [("", ""), ("", self._view.label)] if own else []
        self.push_screen(Window(keys_table([*KEYS, *titles, *own])))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a task."""
        if self._view.id == "tasks" and event.cursor_row < len(self._rows):
            self.push_screen(TaskScreen(self._client, int(self._rows[event.cursor_row].key), self.ask))

    def _current_row(self) -> TopRow | None:
        number = self.query_one(RowTable).cursor_row
        return self._rows[number] if 0 <= number < len(self._rows) else None

    # ---------------------------------------------------------------- actions

    def action_act(self, view: str, number: int) -> None:
        """Ask for an action on the row of the cursor."""
        row = self._current_row()
        if row is not None:
            self.ask(ACTIONS[view][number], row.key, row.name)

    def ask(self, action: TopAction, key: str, name: str) -> None:
        """Ask whether an action is done to a row, and do it; what only shows something is not asked.

        Args:
            action: one of its table.
            key: of the row.
            name: what it stands for.
        """
        if not action.done:
            run_in_background(partial(action.run, self._client, key, ""), self._show, self._refuse, self)
            return
        question = Question(f"{action.label} {name}?", action.effect, action.field)
        self.push_screen(question, partial(self._act, action, key))

    def _act(self, action: TopAction, key: str, answer: str | None) -> None:
        if answer is not None:
            run_in_background(partial(action.run, self._client, key, answer), self._report, self._refuse, self)

    def _show(self, content: RenderableType) -> None:
        self.push_screen(Window(content))

    def _report(self, text: str) -> None:
        self.say(text, "green")
        self.action_read()

    def _refuse(self, error: CommandError) -> None:
        self.say(f"not done: {error}", "bold red")
        self.action_read()
