"""The four tables: their columns, their rows, and by what these are sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich.text import Text

from peerd.cli.cluster.statistics import format_rate, format_seconds
from peerd.cli.output import (
    STATUS_STYLES,
    Column,
    first_line,
    format_age,
    format_elapsed_short,
    render_progress_bar,
    right,
    wide,
)
from peerd.cli.tasks.show import describe_node, describe_note, describe_since, task_title
from peerd.cli.top.reading import Reading
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store.queue_states import QueueState

BAR_WIDTH: Final = 6
LONGEST: Final = 300
"""Characters of a cell."""
COUNTED_FIRST: Final = (Status.PENDING, Status.WORKING, Status.FAILURE)
COUNTED_LAST: Final = (Status.SCHEDULED, Status.BURIED, Status.DEAD)
"""The columns of a queue in their order; its figures stand between the first and the last."""
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class TopRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table.

    Attributes:
        key: the id or the name of what it stands for.
        name: what it stands for, in a question.
        cells: as many as the table has columns.
        order: what each cell is sorted by.
    """

    key: str
    name: str
    cells: tuple[Text, ...]
    order: tuple[Any, ...]

    def contains(self, text: str) -> bool:
        """Whether a text is part of one of its cells, in any case."""
        return any(text.casefold() in cell.plain.casefold() for cell in self.cells)


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the screen.

    Attributes:
        id: its name in the code.
        label: its name on the screen.
        noun: one row of it.
        columns: of which a narrow terminal shows fewer.
        rows: makes them of a reading.
        empty: what is shown without a row.
    """

    id: str
    label: str
    noun: str
    columns: tuple[Column, ...]
    rows: Callable[[Reading], Sequence[TopRow]]
    empty: str


def plain_line(value: object) -> str:
    r"""The first line of a text for one line of the screen, without what would change others.

    >>> plain_line("red \x1b[31m\tand\nblue")
    'red \\x1b[31m and'
    """
    return first_line(str(value)[:LONGEST]).replace("\t", " ")


def _cell(value: object, style: str = "", *, is_right: bool = False) -> Text:
    justify = "right" if is_right else "left"
    return Text(plain_line(value), style, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]


def _number(value: float | None, style: str = "") -> Text:
    return _cell("–" if value is None else f"{value:,.0f}", style if value else "bright_black", is_right=True)


def _seconds(value: float | None) -> tuple[Text, float]:
    return _cell("–" if value is None else format_seconds(value), is_right=True), -1.0 if value is None else value


def _bar(share: float | None) -> tuple[Text, float]:
    return Text("") if share is None else render_progress_bar(share, BAR_WIDTH), -1.0 if share is None else share


def _row(key: str, name: str, *pairs: tuple[Text, Any]) -> TopRow:
    return TopRow(
        key=key,
        name=plain_line(name),
        cells=tuple(cell for cell, _ in pairs),
        order=tuple(order for _, order in pairs),
    )


# ---------------------------------------------------------------- rows


def _task_rows(reading: Reading) -> list[TopRow]:
    names = {node.id: node.name for node in reading.nodes}
    return [_task_row(task, names, reading) for task in reading.tasks]


def _task_row(task: Task, names: dict[int, str], reading: Reading) -> TopRow:
    title, node, note = task_title(task), describe_node(task, names), task.progress_note or describe_note(task)
    moment = task.worker_started_at if task.status is Status.WORKING else task.finished_at or task.start_at
    made = task.attempts_made
    is_running, now = task.status is Status.WORKING, reading.now
    return _row(
        str(task.id),
        f"task {task.id} ({title})",
        (_cell(task.id, is_right=True), task.id),
        (_cell(title), title),
        (_cell("" if reading.status else task.status, STATUS_STYLES[task.status]), task.status),
        (_cell(describe_since(task, now).removeprefix("for ")), (now - (moment or task.created_at)).total_seconds()),
        (_cell(f"{made}/{task.max_attempts or '–'}", is_right=True), made),
        (_cell(node), node),
        _bar(task.progress if is_running else None),
        (_cell(note if is_running else describe_note(task)), note),
    )


def _queue_rows(reading: Reading) -> list[TopRow]:
    return [_queue_row(queue, reading) for queue in reading.queues]


def _queue_row(queue: QueueState, reading: Reading) -> TopRow:
    figures = reading.figures.get(queue.name)
    oldest = None if queue.oldest_pending_at is None else (reading.now - queue.oldest_pending_at).total_seconds()
    state = "paused" if queue.paused else "open" if queue.known else "unserved"
    state_style = {"paused": "yellow", "unserved": "red"}.get(state, "green")
    failed = 0 if figures is None else figures.failures
    rate = 0.0 if figures is None else figures.per_second
    return _row(
        queue.name,
        f"queue {queue.name}",
        (_cell(queue.name), queue.name),
        (_cell(state, state_style), state),
        *[_count(queue, status) for status in COUNTED_FIRST],
        (
            _cell("–" if oldest is None else format_elapsed_short(oldest), is_right=True),
            -1.0 if oldest is None else oldest,
        ),
        (_cell(format_rate(rate * 60) if rate else "–", is_right=True), rate),
        (_number(failed, "red"), failed),
        *[_count(queue, status) for status in COUNTED_LAST],
        _seconds(None if figures is None else figures.wait.p95),
        _seconds(None if figures is None else figures.run.p95),
    )


def _count(queue: QueueState, status: Status) -> tuple[Text, int]:
    count = queue.counts.get(status, 0)
    text = _number(count, STATUS_STYLES[status])
    return (text.append("+") if status in queue.at_least else text), count


def _node_rows(reading: Reading) -> list[TopRow]:
    figures = {} if reading.overview is None else {node.name: node for node in reading.overview.nodes}
    rows = []
    for node in reading.nodes:
        load, figure = reading.loads.get(node.name), figures.get(node.name)
        state = node.state
        style = {"active": "green", "draining": "yellow", "silent": "bold red"}.get(state, "")
        rows.append(
            _row(
                node.name,
                f"node {node.name}",
                (_cell(node.name), node.name),
                (_cell(state, style), state),
                (_number(None if load is None else load.running), 0 if load is None else load.running),
                (_number(None if load is None else load.slots), 0 if load is None else load.slots),
                _bar(None if figure is None else figure.utilisation),
                (
                    _cell(format_age(node.checked_at and min(node.checked_at, reading.now), reading.now)),
                    node.checked_at or LONG_AGO,
                ),
                (_cell(node.version or "–"), node.version or ""),
                (_cell(node.address or "–"), node.address or ""),
            )
        )
    return rows


def _alert_rows(reading: Reading) -> list[TopRow]:
    styles = {"on": "bold red", "recent": "yellow"}
    return [
        _row(
            str(alert.id),
            f"alert {alert.id}",
            (_cell(alert.state, styles.get(alert.state, "")), alert.state),
            (_cell(alert.kind), alert.kind),
            (_cell(alert.subject or "–"), alert.subject or ""),
            (_cell(format_age(alert.last_seen_at, reading.now)), alert.last_seen_at),
            (_cell(alert.about_node or "–"), alert.about_node or ""),
            (_cell(alert.text), alert.text),
        )
        for alert in reading.alerts
    ]


# ---------------------------------------------------------------- tables

VIEWS: Final = (
    TopView(
        id="tasks",
        label="Tasks",
        noun="task",
        columns=(
            right("Id"),
            Column("Task", max_width=40),
            Column("Status"),
            Column("Since"),
            right("Attempts", drop_priority=2),
            Column("Node", max_width=24, drop_priority=1),
            Column("Progress"),
            wide("Note"),
        ),
        rows=_task_rows,
        empty="no task",
    ),
    TopView(
        id="queues",
        label="Queues",
        noun="queue",
        columns=(
            Column("Queue", max_width=40),
            Column("State"),
            right("Pending"),
            right("Running"),
            right("Failure"),
            right("Oldest"),
            right("Done/min"),
            right("Failed"),
            right("Scheduled", drop_priority=3),
            right("Buried", drop_priority=4),
            right("Dead", drop_priority=1),
            right("Wait p95", drop_priority=2),
            right("Run p95", drop_priority=5),
        ),
        rows=_queue_rows,
        empty="no queue has tasks",
    ),
    TopView(
        id="nodes",
        label="Nodes",
        noun="node",
        columns=(
            Column("Node", max_width=40),
            Column("State"),
            right("Running"),
            right("Slots"),
            Column("Busy"),
            Column("Heartbeat"),
            Column("Version", drop_priority=2),
            Column("Address", drop_priority=1, max_width=40),
        ),
        rows=_node_rows,
        empty="no node has registered",
    ),
    TopView(
        id="alerts",
        label="Alerts",
        noun="alert",
        columns=(
            Column("State"),
            Column("Kind"),
            Column("About", max_width=24),
            Column("Seen"),
            Column("Node", max_width=24, drop_priority=1),
            wide("Text"),
        ),
        rows=_alert_rows,
        empty="no alert was raised lately",
    ),
)


def begins_with_greatest(column: Column) -> bool:
    """Whether the first sort by a column shows the greatest first, as it does for numbers."""
    return column.right or column.title in {"Progress", "Busy", "Since", "Seen", "Heartbeat"}
