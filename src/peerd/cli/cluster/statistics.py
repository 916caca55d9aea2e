"""``peerd stats``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from rich.text import Text
from typer import Option

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.output.tables import AlignedTable, Column, right
from peerd.operate.figures import AttemptFigures, SeriesPoint, StatisticsRow

app = new_app()

LEVELS = " .:-=+*#%@"
"""Characters of a sparkline, from nothing to the most; every terminal has them."""
SPARKS = 24
"""Characters of a sparkline."""
TITLES = {"total": (), "queue": ("queue",), "handler": ("queue", "name"), "node": ("node",)}
FIGURE_COLUMNS = (
    right("done"),
    right("done/min"),
    right("failed"),
    right("failed %"),
    right("wait p50", drop_priority=2),
    right("wait p95"),
    right("run p50", drop_priority=1),
    right("run p95"),
    right("slots", drop_priority=3),
)
NOTHING = Text("–", "bright_black")


@command(app, "stats")
def show_statistics(
    context: CommandContext,
    by: Annotated[str, Option(metavar="WHAT", help="queue, handler, node or total.")] = "queue",
    since: Annotated[str, Option(metavar="DURATION", help="How far back.")] = "1h",
    queue: Annotated[str | None, Option(metavar="QUEUE", help="Only this queue.")] = None,
    name: Annotated[str | None, Option(metavar="NAME", help="Only tasks with this name.")] = None,
    node: Annotated[str | None, Option(metavar="NODE", help="Only attempts on this node.")] = None,
) -> None:
    """Show throughput, failures, and wait and run times, by queue, handler or node.

    Attempts count that have ended in the time. The wait of a task begins when it is due and ends with its claim; p50
    and p95 are what half of them and 95 % do not exceed, to within 19 %. The column slots is how many were occupied
    on average; the last one is the throughput over the time, from left to right.
    """
    filters: Any = {"queue": queue, "name": name, "node": node}
    rows = context.client.statistics.summary(since, by=by, **filters)
    series = context.client.statistics.series(since, by=by, **filters)
    context.print_result(
        {"rows": rows, "series": series},
        lambda: statistics_table(rows, series, by) if rows else Text(f"no attempt has ended within {since}"),
    )


def statistics_table(rows: Sequence[StatisticsRow], series: Sequence[SeriesPoint], by: str) -> AlignedTable:
    """A row for each group, the busiest first."""
    titles = TITLES[by]
    columns: list[Column | str] = [*titles, *FIGURE_COLUMNS, Column("", drop_priority=4)]
    span = [point.at.timestamp() for point in series]
    cells = []
    for row in sorted(rows, key=lambda row: -row.figures.done):
        key = [getattr(row, title) for title in titles]
        own = [point for point in series if [getattr(point, title) for title in titles] == key]
        line = sparkline([(point.at.timestamp(), point.figures.per_second) for point in own], min(span), max(span))
        cells.append([*(value or "(no name)" for value in key), *figure_cells(row.figures), Text(line, "green")])
    return AlignedTable(columns, cells)


def figure_cells(figures: AttemptFigures) -> list[Text | str]:
    """The cells of `FIGURE_COLUMNS`."""
    failures = figures.failures
    share = Text(f"{figures.failure_share:.1%}", "red") if figures.failure_share else NOTHING
    return [
        f"{figures.done:,}",
        format_rate(60 * figures.per_second),
        Text(f"{failures:,}", "red") if failures else NOTHING,
        share,
        format_seconds(figures.wait.p50),
        format_seconds(figures.wait.p95),
        format_seconds(figures.run.p50),
        format_seconds(figures.run.p95),
        f"{figures.busy:.1f}",
    ]


def sparkline(points: Sequence[tuple[float, float]], first: float, last: float) -> str:
    """Values by time as characters: each of them stands for a part of the time, and for the greatest value in it.

    Args:
        points: times and values.
        first: the time at the left.
        last: the time at the right.

    >>> sparkline([(0.0, 0.0), (50.0, 5.0), (99.0, 10.0)], 0.0, 100.0)
    '            +          @'
    """
    levels = [0.0] * SPARKS
    for moment, value in points:
        place = min(SPARKS - 1, int(SPARKS * (moment - first) / max(last - first, 1.0)))
        levels[place] = max(levels[place], value)
    greatest = max(levels) or 1.0
    return "".join(LEVELS[-(-int(9_000 * level / greatest) // 1_000)] for level in levels)


def format_rate(rate: float) -> str:
    """A number for a minute: exact to a tenth where it is small.

    >>> format_rate(0.25), format_rate(1234.5), format_rate(0.0)
    ('0.2', '1,234', '0')
    """
    if rate == 0:
        return "0"
    return f"{rate:.1f}" if rate < 10 else f"{rate:,.0f}"


def format_seconds(seconds: float | None) -> Text | str:
    """A duration in two or three digits, for it is not known any better.

    >>> [str(format_seconds(value)) for value in (None, 0.0123, 0.5, 2.34, 75.0, 7200.0)]
    ['–', '12 ms', '500 ms', '2.3 s', '75 s', '120 min']
    """
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 300 else f"{seconds / 60:.0f} min"
