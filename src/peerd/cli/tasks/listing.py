"""``peerd tasks list``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import STATUS_STYLES, first_line, format_elapsed_short, sanitize
from peerd.cli.output.tables import AlignedTable, Column, table
from peerd.cli.tasks.options import BeforeOption, NameOption, NodeOption, QueueOption, StatusOption
from peerd.cli.tasks.show import attempts_made, node_names, task_json
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task


def list_tasks(
    context: CommandContext,
    queue: QueueOption = None,
    name: NameOption = None,
    status: StatusOption = None,
    node: NodeOption = None,
    before: BeforeOption = None,
    limit: Annotated[int, typer.Option("--limit", "-l", help="Tasks at the most.")] = 50,
) -> None:
    """List tasks, newest first."""
    found = context.client.tasks.list(
        queue=queue, name=name, status=status, node=node, before=before, limit=limit, bodies=False
    )
    names = node_names(context.client)
    if not found:
        context.answer([], Text("no such task" if queue or name or status or node or before else "there are no tasks"))
        return
    answer = [
        {column: value for column, value in task_json(task, names).items() if column not in OMITTED_COLUMNS}
        for task in found
    ]
    more = Text(f"older ones: --before {found[-1].id}", "bright_black") if len(found) == limit else None
    context.answer(
        answer,
        lambda: Group(
            tasks_table(found, names, context.client.now()), *([Padding(more, (0, 0, 0, 2))] if more else [])
        ),
    )


OMITTED_COLUMNS = ("body", "body_bytes", "result")
"""Columns that a list leaves out; `peerd tasks show` has them."""
COLUMNS = (
    Column("id", right=True),
    Column("task", max_width=32),
    Column("status"),
    Column(""),
    Column("tries", right=True),
    Column("node", max_width=16),
    Column("note", wide=True),
)


def tasks_table(tasks: Sequence[Task], names: Mapping[int, str], now: datetime) -> AlignedTable:
    """Tasks for people. Status and time read together: working for 3 s, done 2 min ago, failure due in 5 min."""
    return table(COLUMNS, [_row(task, names, now) for task in tasks])


def task_title(task: Task) -> str:
    """Queue and handler in one."""
    return sanitize(f"{task.queue}/{task.name}" if task.name else task.queue)


def _row(task: Task, names: Mapping[int, str], now: datetime) -> list[Text]:
    return [
        Text(str(task.id)),
        Text(task_title(task)),
        Text(task.status, STATUS_STYLES[task.status]),
        Text(describe_since(task, now), "bright_black"),
        Text(f"{attempts_made(task)}/{task.max_attempts or '–'}"),
        Text(describe_node(task, names)),
        Text(describe_note(task)),
    ]


def describe_since(task: Task, now: datetime) -> str:
    """Since when it is as it is, or until when."""
    match task.status:
        case Status.WORKING:
            return _elapsed_since(task.worker_started_at, now)
        case Status.DONE | Status.DEAD | Status.CANCELED:
            return f"{_format_between(task.finished_at or task.updated_at, now)} ago"
        case Status.SCHEDULED | Status.FAILURE if task.start_at is not None and task.start_at > now:
            return f"for {_format_between(now, task.start_at)} more"
        case Status.SCHEDULED | Status.FAILURE:
            return "due"
        case _:
            return _elapsed_since(task.start_at or task.created_at, now)


def _elapsed_since(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"for {_format_between(moment, now)}"


def _format_between(earlier: datetime, later: datetime) -> str:
    return format_elapsed_short((later - earlier).total_seconds())


def describe_node(task: Task, names: Mapping[int, str]) -> str:
    """The node that holds it, or held it last; or the one that it is pinned to."""
    if task.worker_node_id is not None and task.status is not Status.PENDING:
        return sanitize(names.get(task.worker_node_id, f"node {task.worker_node_id}"))
    if task.node_id is not None:
        return sanitize(f"→ {names.get(task.node_id, f'node {task.node_id}')}")
    return ""


def describe_note(task: Task) -> str:
    """What is to be known of it: its progress, or its error."""
    if task.status is Status.WORKING:
        percent = "" if task.progress is None else f"{task.progress:.0%} "
        return f"{percent}{first_line(task.progress_note)}".strip()
    return "" if task.status in (Status.DONE, Status.PENDING) and task.attempts == 0 else first_line(task.error)
