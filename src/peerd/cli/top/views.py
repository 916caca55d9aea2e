"""The four tables: their columns, the cells of their rows, and by what these are sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich.text import Text

from peerd.cli.cluster.statistics import format_rate, format_seconds
from peerd.cli.output import (
    STATUS_STYLES,
    UNKNOWN,
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
from peerd.store.nodes import Node
from peerd.store.queue_states import QueueState

BAR_WIDTH: Final = 6
LONGEST: Final = 300
"""Characters of a cell."""
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
QUEUE_STYLES: Final = {"paused": "yellow", "unserved": "red", "open": "green"}
NODE_STYLES: Final = {"active": "green", "draining": "yellow", "silent": "bold red"}
ALERT_STYLES: Final = {"on": "bold red", "recent": "yellow"}
SortedCell = tuple[Text, Any]
"""A cell, and what it is sorted by."""


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
        items: what its rows stand for.
        key: the attribute of an item that actions name it by.
        describe: what else the name of an item says in a question.
        fields: the columns, each with what makes its cell; a narrow terminal leaves some out.
        empty: what is shown without a row.
    """

    id: str
    label: str
    noun: str
    items: Callable[[Reading], Sequence[Any]]
    key: str
    describe: Callable[[Any], str] = lambda _: ""
    fields: tuple[tuple[Column, Callable[[Any, Reading], SortedCell]], ...]
    empty: str

    @property
    def columns(self) -> list[Column]:
        """The columns alone."""
        return [column for column, _ in self.fields]

    def rows(self, reading: Reading) -> list[TopRow]:
        """The rows of a reading."""
        return [self._row(item, reading) for item in self.items(reading)]

    def _row(self, item: Any, reading: Reading) -> TopRow:
        key = str(getattr(item, self.key))
        cells, order = zip(*[make_cell(item, reading) for _, make_cell in self.fields], strict=True)
        return TopRow(key=key, name=plain_line(f"{self.noun} {key}{self.describe(item)}"), cells=cells, order=order)


def plain_line(value: object) -> str:
    r"""The first line of a text for one line of the screen, without what would change others.

    >>> plain_line("red \x1b[31m\tand\nblue")
    'red \\x1b[31m and'
    """
    return first_line(str(value)[:LONGEST]).replace("\t", " ")


# ---------------------------------------------------------------- cells


def _cell(value: object, style: str = "", *, is_right: bool = False) -> Text:
    justify = "right" if is_right else "left"
    return Text(plain_line(value), style, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]


def _word(value: str | None, style: str = "") -> SortedCell:
    return _cell(value or UNKNOWN, style), value or ""


def _number(value: float | None, style: str = "") -> SortedCell:
    text = UNKNOWN if value is None else f"{value:,.0f}"
    return _cell(text, style if value else "bright_black", is_right=True), value or 0


def _seconds(value: float | None) -> SortedCell:
    return _cell(format_seconds(value), is_right=True), -1.0 if value is None else value


def _bar(share: float | None) -> SortedCell:
    return Text("") if share is None else render_progress_bar(share, BAR_WIDTH), -1.0 if share is None else share


def _age(moment: datetime | None, now: datetime) -> SortedCell:
    return _cell(format_age(moment and min(moment, now), now)), moment or LONG_AGO


def _task_status(task: Task, reading: Reading) -> SortedCell:
    return _cell("" if reading.status else task.status, STATUS_STYLES[task.status]), task.status


def _attempts(task: Task, _: Reading) -> SortedCell:
    made = task.attempts_made
    return _cell(f"{made}/{task.max_attempts or UNKNOWN}", is_right=True), made


def _task_node(task: Task, reading: Reading) -> SortedCell:
    node = describe_node(task, reading.node_names)
    return _cell(node), node


def _since(task: Task, reading: Reading) -> SortedCell:
    moment = task.worker_started_at if task.status is Status.WORKING else task.finished_at or task.start_at
    shown = describe_since(task, reading.now).removeprefix("for ")
    return _cell(shown), (reading.now - (moment or task.created_at)).total_seconds()


def _note(task: Task, _: Reading) -> SortedCell:
    note = task.progress_note or describe_note(task)
    return _cell(note if task.status is Status.WORKING else describe_note(task)), note


def _queue_state(queue: QueueState, _: Reading) -> SortedCell:
    state = "paused" if queue.paused else "open" if queue.known else "unserved"
    return _word(state, QUEUE_STYLES[state])


def _count(queue: QueueState, status: Status) -> SortedCell:
    text, count = _number(queue.counts.get(status, 0), STATUS_STYLES[status])
    return (text.append("+") if status in queue.at_least else text), count


def _oldest(queue: QueueState, reading: Reading) -> SortedCell:
    if queue.oldest_pending_at is None:
        return _cell(UNKNOWN, is_right=True), -1.0
    seconds = (reading.now - queue.oldest_pending_at).total_seconds()
    return _cell(format_elapsed_short(seconds), is_right=True), seconds


def _rate(queue: QueueState, reading: Reading) -> SortedCell:
    figures = reading.figures.get(queue.name)
    rate = 0.0 if figures is None else figures.per_second
    return _cell(format_rate(rate * 60) if rate else UNKNOWN, is_right=True), rate


def _failed(queue: QueueState, reading: Reading) -> SortedCell:
    figures = reading.figures.get(queue.name)
    return _number(0 if figures is None else figures.failures, "red")


def _wait(queue: QueueState, reading: Reading) -> SortedCell:
    figures = reading.figures.get(queue.name)
    return _seconds(None if figures is None else figures.wait.p95)


def _run(queue: QueueState, reading: Reading) -> SortedCell:
    figures = reading.figures.get(queue.name)
    return _seconds(None if figures is None else figures.run.p95)


def _load(node: Node, reading: Reading, name: str) -> SortedCell:
    load = reading.loads.get(node.name)
    return _number(None if load is None else getattr(load, name))


# ---------------------------------------------------------------- tables

VIEWS: Final = (
    TopView(
        id="tasks",
        label="Tasks",
        noun="task",
        items=lambda reading: reading.tasks,
        key="id",
        describe=lambda task: f" ({task_title(task)})",
        fields=(
            (right("Id"), lambda task, _: (_cell(task.id, is_right=True), task.id)),
            (Column("Task", max_width=40), lambda task, _: (_cell(task_title(task)), task_title(task))),
            (Column("Status"), _task_status),
            (Column("Since"), _since),
            (right("Attempts", drop_priority=2), _attempts),
            (Column("Node", max_width=24, drop_priority=1), _task_node),
            (Column("Progress"), lambda task, _: _bar(task.progress if task.status is Status.WORKING else None)),
            (wide("Note"), _note),
        ),
        empty="no task",
    ),
    TopView(
        id="queues",
        label="Queues",
        noun="queue",
        items=lambda reading: reading.queues,
        key="name",
        fields=(
            (Column("Queue", max_width=40), lambda queue, _: _word(queue.name)),
            (Column("State"), _queue_state),
            (right("Pending"), lambda queue, _: _count(queue, Status.PENDING)),
            (right("Running"), lambda queue, _: _count(queue, Status.WORKING)),
            (right("Failure"), lambda queue, _: _count(queue, Status.FAILURE)),
            (right("Oldest"), _oldest),
            (right("Done/min"), _rate),
            (right("Failed"), _failed),
            (right("Scheduled", drop_priority=3), lambda queue, _: _count(queue, Status.SCHEDULED)),
            (right("Buried", drop_priority=4), lambda queue, _: _count(queue, Status.BURIED)),
            (right("Dead", drop_priority=1), lambda queue, _: _count(queue, Status.DEAD)),
            (right("Wait p95", drop_priority=2), _wait),
            (right("Run p95", drop_priority=5), _run),
        ),
        empty="no queue has tasks",
    ),
    TopView(
        id="nodes",
        label="Nodes",
        noun="node",
        items=lambda reading: reading.nodes,
        key="name",
        fields=(
            (Column("Node", max_width=40), lambda node, _: _word(node.name)),
            (Column("State"), lambda node, _: _word(node.state, NODE_STYLES.get(node.state, ""))),
            (right("Running"), lambda node, reading: _load(node, reading, "running")),
            (right("Slots"), lambda node, reading: _load(node, reading, "slots")),
            (Column("Busy"), lambda node, reading: _bar(reading.utilisation.get(node.name))),
            (Column("Heartbeat"), lambda node, reading: _age(node.checked_at, reading.now)),
            (Column("Version", drop_priority=2), lambda node, _: _word(node.version)),
            (Column("Address", drop_priority=1, max_width=40), lambda node, _: _word(node.address)),
        ),
        empty="no node has registered",
    ),
    TopView(
        id="alerts",
        label="Alerts",
        noun="alert",
        items=lambda reading: reading.alerts,
        key="id",
        fields=(
            (Column("State"), lambda alert, _: _word(alert.state, ALERT_STYLES.get(alert.state, ""))),
            (Column("Kind"), lambda alert, _: _word(alert.kind)),
            (Column("About", max_width=24), lambda alert, _: _word(alert.subject)),
            (Column("Seen"), lambda alert, reading: _age(alert.last_seen_at, reading.now)),
            (Column("Node", max_width=24, drop_priority=1), lambda alert, _: _word(alert.about_node)),
            (wide("Text"), lambda alert, _: (_cell(alert.text), alert.text)),
        ),
        empty="no alert was raised lately",
    ),
)


def begins_with_greatest(column: Column) -> bool:
    """Whether the first sort by a column shows the greatest first, as it does for numbers."""
    return column.right or column.title in {"Progress", "Busy", "Since", "Seen", "Heartbeat"}
