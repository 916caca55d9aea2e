"""``peerd stats`` and ``peerd errors``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

from rich.text import Text
from typer import Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import Column, Fields, right
from peerd.operate.figures import AttemptFigures, ErrorGroup, SeriesPoint, StatisticsRow, slowest_first

app = new_app()

LEVELS = " .:-=+*#%@"
"""Characters of a sparkline, from nothing to the most; every terminal has them."""
SPARKS = 24
"""Characters of a sparkline."""
TITLES: dict[str, dict[str, str]] = {
    "total": {},
    "queue": {"queue": "queue"},
    "handler": {"queue": "queue", "handler": "name"},
    "node": {"node": "node"},
}
"""What names a row: the title of each column, and its field."""
SLOWER = 2.0
"""How many times as slow as before a handler is shown in red."""
NOTHING = Text("–", "bright_black")

SinceOption = Annotated[str, Option(metavar="DURATION", help="How far back.")]
QueueOption = Annotated[str | None, Option(metavar="QUEUE", help="Only this queue.")]
HandlerOption = Annotated[str | None, Option(metavar="HANDLER", help="Only of this handler.")]


@command(app, "stats")
def show_statistics(
    context: CommandContext,
    by: Annotated[str, Option(metavar="WHAT", help="queue, handler, node or total.")] = "queue",
    since: SinceOption = "1h",
    queue: QueueOption = None,
    name: HandlerOption = None,
    node: Annotated[str | None, Option(metavar="NODE", help="Only attempts on this node.")] = None,
    against: Annotated[str | None, Option(metavar="DURATION", help="Beside so long ago, e.g. 1d: yesterday.")] = None,
) -> None:
    """Show throughput, failures, and wait and run times, by queue, handler or node.

    Attempts count that have ended in the time. The wait of a task begins when it is due and ends with its claim; p50
    and p95 are what half of them and 95 % do not exceed, to within 19 %. The column slots is how many were occupied
    on average; the last one is the throughput over the time, from left to right.

    peerd stats --by handler --against 1d

    compares with as long a time that ended so much earlier; what has slowed down most comes first.
    """
    filters: Any = {"queue": queue, "name": name, "node": node}
    rows = context.client.statistics.summary(since, by=by, against=against, **filters)
    empty = f"no attempt has ended within {since}"
    if against is not None:
        context.print_table({"rows": rows}, [*_key_fields(by), *COMPARED_FIELDS], slowest_first(rows), empty)
        return
    series = context.client.statistics.series(since, by=by, **filters)
    line: Fields[StatisticsRow] = ((Column("", drop_priority=4), lambda row: _sparkline_of(row, series, by)),)
    busiest = sorted(rows, key=lambda row: -row.figures.done)
    context.print_table({"rows": rows, "series": series}, [*_key_fields(by), *FIGURE_FIELDS, *line], busiest, empty)


@command(app, "errors")
def show_errors(
    context: CommandContext,
    since: SinceOption = "1d",
    queue: QueueOption = None,
    name: HandlerOption = None,
) -> None:
    """Show what fails most: failed attempts, crashes and time-outs among them, by handler and kind of error.

    Numbers, ids and addresses in the texts are left out of the comparison. For the dead tasks of a kind:

    peerd tasks retry --status dead --queue QUEUE --name HANDLER --search TEXT --dry-run
    """
    found = context.client.statistics.errors(since, queue=queue, name=name)
    context.print_table(found, ERROR_FIELDS, found.groups, f"no attempt has failed within {since}")
    if not found.complete:
        context.print_hint(f"of the newest {found.examined:,} failed attempts; peerd stats counts all")


def _key_fields(by: str) -> Fields[StatisticsRow]:
    """The columns that name a row."""
    return [(title, partial(_key_cell, field)) for title, field in TITLES[by].items()]


def _key_cell(field: str, row: StatisticsRow) -> str:
    name: str | None = getattr(row, field)
    return name or "(no name)"


def _sparkline_of(row: StatisticsRow, series: Sequence[SeriesPoint], by: str) -> Text:
    span = [point.at.timestamp() for point in series]
    own = [point for point in series if all(getattr(point, one) == getattr(row, one) for one in TITLES[by].values())]
    line = sparkline([(point.at.timestamp(), point.figures.per_second) for point in own], min(span), max(span))
    return Text(line, "green")


def _before(row: StatisticsRow) -> AttemptFigures:
    assert row.before is not None, "they were compared"
    return row.before


def _slowdown_cell(row: StatisticsRow) -> Text:
    return NOTHING if row.slowdown is None else Text(f"× {row.slowdown:.1f}", "red" if row.slowdown >= SLOWER else "")


def _red_number(number: float | None, form: str) -> Text:
    return Text(format(number, form), "red") if number else NOTHING


def _share_cell(share: float | None) -> Text | str:
    return NOTHING if share is None else f"{share:.1%}"


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


FIGURE_FIELDS: Final[Fields[StatisticsRow]] = (
    (right("done"), lambda row: f"{row.figures.done:,}"),
    (right("done/min"), lambda row: format_rate(60 * row.figures.per_second)),
    (right("failed"), lambda row: _red_number(row.figures.failures, ",")),
    (right("failed %"), lambda row: _red_number(row.figures.failure_share, ".1%")),
    (right("wait p50", drop_priority=2), lambda row: format_seconds(row.figures.wait.p50)),
    (right("wait p95"), lambda row: format_seconds(row.figures.wait.p95)),
    (right("run p50", drop_priority=1), lambda row: format_seconds(row.figures.run.p50)),
    (right("run p95"), lambda row: format_seconds(row.figures.run.p95)),
    (right("slots", drop_priority=3), lambda row: f"{row.figures.busy:.1f}"),
)
COMPARED_FIELDS: Final[Fields[StatisticsRow]] = (
    (right("slower"), _slowdown_cell),
    (right("run p50"), lambda row: format_seconds(row.figures.run.p50)),
    (right("before"), lambda row: format_seconds(_before(row).run.p50)),
    (right("run p95"), lambda row: format_seconds(row.figures.run.p95)),
    (right("before"), lambda row: format_seconds(_before(row).run.p95)),
    (right("done"), lambda row: f"{row.figures.done:,}"),
    (right("failed %"), lambda row: _share_cell(row.figures.failure_share)),
    (right("before"), lambda row: _share_cell(_before(row).failure_share)),
)
ERROR_FIELDS: Final[Fields[ErrorGroup]] = (
    (right("attempts"), lambda group: Text(f"{group.count:,}", "red")),
    (right("dead"), lambda group: f"{group.dead:,}" if group.dead else NOTHING),
    ("last (UTC)", lambda group: f"{group.last_at:%m-%d %H:%M:%S}"),
    ("queue", lambda group: group.queue),
    ("handler", lambda group: group.name or "(no name)"),
    ("error", lambda group: group.error or "(no text)"),
    (right("task", drop_priority=1), lambda group: str(group.example_task)),
)
