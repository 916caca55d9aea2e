"""How the command line prints: values as text, tables, findings, and a display that is redrawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self, TypeAlias, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peerd.domain.lifecycle import Status
from peerd.domain.quoting import escape_line, escape_text
from peerd.operate.diagnostics import Finding, Level
from peerd.operate.diagnostics.finding import Verdict

# ---------------------------------------------------------------- values


STATUS_STYLES: Final[dict[str, str]] = {
    Status.SCHEDULED: "blue",
    Status.PENDING: "cyan",
    Status.WORKING: "bold yellow",
    Status.DONE: "green",
    Status.FAILURE: "magenta",
    Status.DEAD: "bold red",
    Status.WAITING: "blue",
    Status.CANCELED: "bright_black",
    Status.BURIED: "bright_black",
}

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


sanitize: Final = escape_text
"""Escapes characters that control a terminal, and surrogates, which no stream can encode."""


def first_line(text: str | None) -> str:
    """The first line of a text, sanitized."""
    stripped = (text or "").strip()
    return sanitize(stripped.splitlines()[0]) if stripped else ""


def format_elapsed(seconds: float) -> str:
    """A duration in its one or two largest units.

    >>> [format_elapsed(seconds) for seconds in (0.2, 3.4, 75, 3 * 3600 + 120, 90000)]
    ['0 s', '3 s', '1 min 15 s', '3 h 2 min', '1 d 1 h']
    """
    rest = max(round(seconds), 0)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


def format_elapsed_short(seconds: float) -> str:
    """A duration in its largest unit.

    >>> format_elapsed_short(75), format_elapsed_short(90000)
    ('1 min', '1 d')
    """
    rest = max(round(seconds), 0)
    return next((f"{rest // size} {unit}" for size, unit in _UNITS if rest >= size), "0 s")


def format_age(moment: datetime | None, now: datetime) -> str:
    """A time relative to now.

    >>> from datetime import timedelta, UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> format_age(now - timedelta(seconds=3), now), format_age(now + timedelta(minutes=5), now), format_age(None, now)
    ('3 s ago', 'in 5 min', 'never')
    """
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    return f"{format_elapsed_short(seconds)} ago" if seconds > -0.5 else f"in {format_elapsed_short(-seconds)}"


def format_timestamp(moment: datetime | None, now: datetime) -> str:
    """A time in full, and relative to now."""
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC ({format_age(moment, now)})"


def pluralize(count: int, noun: str) -> str:
    """A number with its noun.

    >>> pluralize(1, "task"), pluralize(2, "process")
    ('1 task', '2 processes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


# ---------------------------------------------------------------- tables


UNKNOWN: Final = "–"
"""Stands for what is not known, or does not exist."""
GAP: Final = 2
"""Spaces between two columns, and before the first."""
MIN_WIDTH: Final = 8
"""The width to which a column is cut in a narrow terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its title.
        right: whether it is aligned to the right.
        wide: whether it is cut before all others where there is not enough room.
        max_width: the width that it never exceeds.
        drop_priority: columns with one are left out where there is not enough room, the largest first.
    """

    title: str = ""
    right: bool = False
    wide: bool = False
    max_width: int | None = None
    drop_priority: int = 0


def right(title: str, *, drop_priority: int = 0) -> Column:
    """A column that is aligned to the right."""
    return Column(title, right=True, drop_priority=drop_priority)


def wide(title: str) -> Column:
    """A column that is cut before all others."""
    return Column(title, wide=True)


T = TypeVar("T")
Fields: TypeAlias = Sequence[tuple[Column | str, Callable[[T], Text | str]]]
"""The columns of a table, or their titles alone, each with what makes its cell of an item."""


class AlignedTable:
    """Rows below their titles, indented; the first column is never cut.

    Rich shrinks all columns alike, until an id cannot be read; therefore the widths are computed here.

    Args:
        fields: the columns and their cells; plain strings are made harmless for a terminal.
        items: each becomes a row.
    """

    def __init__(self, fields: Fields[T], items: Iterable[T]) -> None:
        self._columns = [Column(column) if isinstance(column, str) else column for column, _ in fields]
        self._rows = [[_to_cell(make_cell(item)) for _, make_cell in fields] for item in items]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        natural = [self._natural_width(index) for index in range(len(self._columns))]
        widths = fit_columns(self._columns, natural, options.max_width - GAP)
        rich_table = Table(
            box=None,
            pad_edge=False,
            padding=(0, GAP, 0, 0),
            show_header=any(self._columns[index].title for index in widths),
            header_style="bright_black",
        )
        for index, width in widths.items():
            column = self._columns[index]
            justify: JustifyMethod = "right" if column.right else "left"
            rich_table.add_column(column.title, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
        for row in self._rows:
            rich_table.add_row(*[row[index] for index in widths])
        yield Padding(rich_table, (0, 0, 0, GAP), expand=False)

    def _natural_width(self, index: int) -> int:
        column = self._columns[index]
        widest = max([cell_len(column.title), *[row[index].cell_len for row in self._rows]])
        return min(widest, column.max_width or widest)


def _to_cell(value: Text | str) -> Text:
    return value if isinstance(value, Text) else Text(escape_line(value))


def fit_columns(columns: Sequence[Column], natural: Sequence[int], available: int) -> dict[int, int]:
    """The widths of the columns that are shown, by their indexes.

    Columns are left out by their `drop_priority`, then wide ones are cut, then others from the right.

    Args:
        columns: all of them.
        natural: the width of each, if there is room enough.
        available: the width of all together, with `GAP` between two.

    >>> fit_columns([Column("id"), wide("note"), Column("node", drop_priority=1)], [4, 30, 6], 40)
    {0: 4, 1: 26, 2: 6}
    >>> fit_columns([Column("id"), wide("note"), Column("node", drop_priority=1)], [4, 30, 6], 20)
    {0: 4, 1: 14}
    """
    widths = dict(enumerate(natural))
    for index in sorted(widths, key=lambda index: -columns[index].drop_priority):
        if columns[index].drop_priority and _min_total(columns, widths) > available:
            del widths[index]
    excess = sum(widths.values()) + GAP * (len(widths) - 1) - available
    for index in sorted(list(widths)[1:], key=lambda index: (columns[index].wide, index), reverse=True):
        cut = max(min(excess, widths[index] - MIN_WIDTH), 0)
        widths[index] -= cut
        excess -= cut
    return widths


def _min_total(columns: Sequence[Column], widths: Mapping[int, int]) -> int:
    needed = [min(MIN_WIDTH, width) if columns[index].wide else width for index, width in widths.items()]
    return sum(needed) + GAP * (len(needed) - 1)


def make_key_value_table(pairs: Iterable[tuple[str, Text | str | None]]) -> Padding:
    """Names and values below each other; a name without a value is left out."""
    rich_table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    rich_table.add_column(style="bright_black", no_wrap=True)
    rich_table.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            rich_table.add_row(name, value if isinstance(value, Text) else Text(sanitize(value)))
    return Padding(rich_table, (0, 0, 0, GAP), expand=False)


# ---------------------------------------------------------------- findings


LEVEL_STYLES: Final = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
VERDICT_STYLES: Final = {Verdict.GREEN: "green", Verdict.YELLOW: "yellow", Verdict.RED: "bold red"}


def finding_lines(findings: Iterable[Finding]) -> Iterator[Text]:
    """The lines of findings, the worst at the end, where a terminal shows it."""
    for finding in sorted(findings, key=lambda finding: finding.level.weight):
        word = Text(f"{finding.level:>9}  ", LEVEL_STYLES[finding.level])
        yield Text.assemble(word, (finding.subject, "bold"), "  ", sanitize(finding.message))
        if finding.remedy:
            yield Text.assemble(" " * 11, ("try: ", "bright_black"), sanitize(finding.remedy))


# ---------------------------------------------------------------- live display


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
