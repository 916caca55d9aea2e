"""The lines above the tables: whether all is well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from peerd.cli.cluster.statistics import format_rate, format_seconds
from peerd.cli.output import LEVEL_STYLES, STATUS_STYLES
from peerd.cli.top.reading import Reading
from peerd.cli.top.views import plain_line
from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics import Level
from peerd.operate.figures import AttemptFigures

MOST_FINDINGS: Final = 3
COUNTED: Final = (Status.PENDING, Status.WORKING, Status.SCHEDULED, Status.FAILURE, Status.DEAD, Status.BURIED)
GAP: Final = "  "


def summarize(reading: Reading, source: str, width: int, silence: str | None) -> Text:
    """The source and the time, the figures, the counts, and what needs attention, each on a line of its own.

    Args:
        reading: the latest.
        source: the URL of the database or the server, without a password.
        width: of a line, in cells.
        silence: since when the source does not answer, and why; None: it answers.
    """
    head = Text(no_wrap=True, overflow="ellipsis").append("peerd ", "bold")
    head.append(f"{reading.now:%H:%M:%S} UTC  {plain_line(source)}", "bright_black")
    lines = [_cut(head, width)]
    if silence is not None:
        lines.append(_cut(Text(plain_line(silence), "bold white on red"), width))
    overview = reading.overview
    if overview is None:
        refused = "the figures of the whole cluster need the right view, of all queues"
        hint = "reading the figures …" if reading.is_first else refused
        lines.append(_cut(Text(hint, "bright_black"), width))
        return Text("\n").join([*lines, *pack(_counts(reading), width)])
    lines += pack(_figures(overview.figures), width)
    active = sum(node.state == "active" for node in overview.nodes)
    nodes = f"nodes {active} of {len(overview.nodes)}"
    busy = Text(f"busy {overview.figures.busy:.1f} of {overview.slots}")
    lines += pack([*_counts(reading), busy, Text(nodes, "bold red" if active < len(overview.nodes) else "")], width)
    found = [finding for finding in overview.concerns if finding.level is not Level.NOTE]
    for finding in found[:MOST_FINDINGS]:
        lines.append(_cut(Text(f"! {plain_line(finding.message)}", LEVEL_STYLES[finding.level]), width))
    if len(found) > MOST_FINDINGS:
        lines.append(_cut(Text(f"! and {len(found) - MOST_FINDINGS} more: peerd doctor", "yellow"), width))
    return Text("\n").join(lines)


def pack(items: Iterable[Text], width: int) -> list[Text]:
    """Put as many items on a line as there is room for.

    >>> [line.plain for line in pack([Text("pending 7"), Text("working 1"), Text("dead 0")], 22)]
    ['pending 7  working 1', 'dead 0']
    """
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + len(GAP) + item.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], GAP, item)
        else:
            lines.append(_cut(item, width))
    return lines


def _cut(line: Text, width: int) -> Text:
    cut = line.copy()
    cut.truncate(width, overflow="ellipsis")
    return cut


def _figures(figures: AttemptFigures) -> Iterator[Text]:
    yield Text.assemble((format_rate(figures.per_second * 60), "bold"), " done/min")
    yield Text.assemble((f"{figures.failures:,}", "bold red" if figures.failures else "bold"), " failed in 10 min")
    yield Text(f"wait {format_seconds(figures.wait.p50)}, p95 {format_seconds(figures.wait.p95)}")
    yield Text(f"run {format_seconds(figures.run.p50)}, p95 {format_seconds(figures.run.p95)}")


def _counts(reading: Reading) -> Iterator[Text]:
    """The unfinished tasks of the queues, which are newer than the samples of the overview."""
    for status in COUNTED:
        count = sum(queue.counts.get(status, 0) for queue in reading.queues)
        more = "+" if any(status in queue.at_least for queue in reading.queues) else ""
        style = STATUS_STYLES[status] if count else "bright_black"
        yield Text.assemble((f"{count:,}{more}", style), (f" {status}", "bright_black"))
