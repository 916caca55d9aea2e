"""``peerd tasks list``, ``show`` and ``stack``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import LimitOption, parse_duration_option
from peerd.cli.command import CommandContext
from peerd.cli.output import (
    STATUS_STYLES,
    UNKNOWN,
    Column,
    Fields,
    first_line,
    format_elapsed,
    format_elapsed_short,
    format_timestamp,
    make_key_value_table,
    right,
    sanitize,
    wide,
)
from peerd.cli.tasks.log_lines import SHOWN_WITH_TASK, render_last_lines
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.domain.task_stack import CallStack, TaskStack
from peerd.domain.units import format_duration
from peerd.operate.client import Client
from peerd.operate.task_filter import TaskFilter
from peerd.store.tasks.pages import TaskPage

MAX_SHOWN_BYTES = 200
"""Bytes of a body that is no text that are printed."""
MAX_SHOWN_CHARACTERS = 4_000
"""Characters of a body, a result or a traceback that are printed."""
OMITTED_COLUMNS = ("body", "body_bytes", "result")
"""Columns that a list leaves out, since they may be large; `peerd tasks show` has them."""
JOB_COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")

filter_option = partial(Option, rich_help_panel="Filters")
QueueOption = Annotated[str | None, filter_option("--queue", "-q", metavar="QUEUE", help="Of this queue.")]
NameOption = Annotated[str | None, filter_option("--name", "-n", metavar="HANDLER", help="Of this handler.")]


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """The options that select tasks."""

    queue: QueueOption = None
    name: NameOption = None
    status: Annotated[str | None, filter_option("--status", "-s", metavar="STATUS", help="In this status.")] = None
    node: Annotated[str | None, filter_option(metavar="NODE", help="Pinned to this node, or last claimed by it.")] = (
        None
    )
    search: Annotated[
        str | None, filter_option(metavar="TEXT", help="With this text in the body or the error, in any case.")
    ] = None
    where: Annotated[
        list[str] | None,
        filter_option(
            metavar="CONDITION",
            help="A column compared: priority>=20, error~timeout, created_at>-1h, node_id=null. Repeatable.",
        ),
    ] = None

    def to_filter(self) -> TaskFilter:
        """The options as the client takes them."""
        return TaskFilter(self.queue, self.name, self.status, self.node, self.search, tuple(self.where or ()))


def list_tasks(
    context: CommandContext,
    options: FilterOptions,
    after: Annotated[str | None, filter_option(metavar="CURSOR", help="The page behind this one's cursor.")] = None,
    limit: LimitOption = 50,
) -> None:
    """List tasks: ended ones, the latest first; scheduled ones, the soonest first; else the newest first.

    peerd tasks list --status dead --search 'no space left'

    peerd tasks list --queue video --where 'priority>=20' --where 'created_at>-1h'
    """
    conditions = msgspec.structs.asdict(options.to_filter())
    page = context.client.tasks.page(**conditions, after=after, limit=limit, bodies=False)
    names = node_names(context.client)
    answer = {"items": [list_json(task, names) for task in page.items], "next": page.next, "examined": page.examined}
    empty = _describe_nothing(page, is_filtered=after is not None or options != FilterOptions())
    context.print_table(answer, task_fields(names, context), page.items, empty)
    if page.items and page.next is not None:
        context.print_hint(f"more: --after {page.next}")


def _describe_nothing(page: TaskPage, *, is_filtered: bool) -> str:
    if page.next is not None:
        took = f"no such task among the first {page.examined:,}, which took a tenth of a second"
        return f"{took}; search on with --after {page.next}"
    return "no such task" if is_filtered else "there are no tasks"


def show(context: CommandContext, ids: Annotated[list[int], Argument(metavar="ID", help="Tasks.")]) -> None:
    """Show tasks in full, with their attempts and last log lines."""
    nodes = context.client.nodes.list()
    names = {node.id: node.name for node in nodes}
    shown = {node.id: node.name if node.active else f"{node.name} ({node.state})" for node in nodes}
    tasks = context.client.tasks
    found = [
        (tasks.get(task_id), tasks.attempts(task_id), tasks.last_logs(task_id, limit=SHOWN_WITH_TASK))
        for task_id in ids
    ]
    answer = [
        task_json(task, names) | {"failed_attempts": attempts, "log_lines": last.count}
        for task, attempts, last in found
    ]
    pages = [
        Group(render_task(task, attempts, shown, context.now), *render_last_lines(last))
        for task, attempts, last in found
        if not context.as_json
    ]
    context.print_result(answer if len(answer) > 1 else answer[0], *pages)


def node_names(client: Client) -> dict[int, str]:
    """The names of all nodes, by their ids."""
    return {node.id: node.name for node in client.nodes.list()}


def task_json(task: Task, names: Mapping[int, str]) -> dict[str, Any]:
    """A task for JSON: its columns, and the names of its nodes."""
    row: dict[str, Any] = msgspec.to_builtins(task)
    row["node"] = None if task.node_id is None else names.get(task.node_id)
    row["worker_node"] = None if task.worker_node_id is None else names.get(task.worker_node_id)
    return row


def list_json(task: Task, names: Mapping[int, str]) -> dict[str, Any]:
    """A task in a list: without what may be large."""
    return {name: value for name, value in task_json(task, names).items() if name not in OMITTED_COLUMNS}


def task_title(task: Task) -> str:
    """Queue and handler."""
    return sanitize(f"{task.queue}/{task.name}" if task.name else task.queue)


def describe_since(task: Task, now: datetime) -> str:
    """How long the task has had its status, or until when it keeps it."""
    match task.status:
        case Status.WORKING:
            return "" if task.worker_started_at is None else f"for {_format_between(task.worker_started_at, now)}"
        case Status.DONE | Status.DEAD | Status.CANCELED:
            return f"{_format_between(task.finished_at or task.updated_at, now)} ago"
        case Status.SCHEDULED | Status.FAILURE if task.start_at is not None and task.start_at > now:
            return f"for {_format_between(now, task.start_at)} more"
        case Status.SCHEDULED | Status.FAILURE:
            return "due"
        case _:
            return f"for {_format_between(task.start_at or task.created_at, now)}"


def describe_node(task: Task, names: Mapping[int, str]) -> str:
    """The node that has claimed a task, now or last; or the one that it is pinned to."""
    if task.worker_node_id is not None and task.status is not Status.PENDING:
        return sanitize(_node_name(task.worker_node_id, names))
    return "" if task.node_id is None else sanitize(f"→ {_node_name(task.node_id, names)}")


def format_run_time(task: Task) -> str:
    """How long the last attempt of a task ran; empty if it has not ended."""
    if task.worker_started_at is None or task.finished_at is None:
        return ""
    return format_elapsed((task.finished_at - task.worker_started_at).total_seconds())


def task_fields(names: Mapping[int, str], context: CommandContext) -> Fields[Task]:
    """The columns of a list of tasks."""
    return (
        (right("id"), lambda task: str(task.id)),
        (Column("task", max_width=32), task_title),
        ("status", lambda task: Text(task.status, STATUS_STYLES[task.status])),
        ("", lambda task: Text(describe_since(task, context.now), "bright_black")),
        (right("attempts"), lambda task: f"{task.attempts_made}/{task.max_attempts or UNKNOWN}"),
        (Column("node", max_width=16), lambda task: describe_node(task, names)),
        (wide("note"), describe_note),
    )


def describe_note(task: Task) -> str:
    """The progress of a task, or its error."""
    if task.status is Status.WORKING:
        percent = "" if task.progress is None else f"{task.progress:.0%} "
        return f"{percent}{first_line(task.progress_note)}".strip()
    return "" if task.status in (Status.DONE, Status.PENDING) and task.attempts == 0 else first_line(task.error)


def _format_between(earlier: datetime, later: datetime) -> str:
    return format_elapsed_short((later - earlier).total_seconds())


def _node_name(node_id: int, names: Mapping[int, str]) -> str:
    return names.get(node_id, f"node {node_id}")


def render_task(task: Task, attempts: Sequence[Attempt], names: Mapping[int, str], now: datetime) -> RenderableType:
    """A task in full."""
    title = Text.assemble(
        (f"task {task.id} ", "bold"), task_title(task), " is ", (task.status, STATUS_STYLES[task.status])
    )
    parts: list[RenderableType] = [title, make_key_value_table(_details(task, names, now))]
    body = _indent_json(task.body) if task.body_bytes is None else _render_bytes(task.body_bytes)
    for name, text in (("body", body), ("result", _indent_json(task.result)), ("error", task.error)):
        if text:
            parts += _render_block(name, text)
    if attempts:
        parts.append(Text("attempts that did not succeed", "bold"))
        parts += [_render_attempt(attempt, names, now) for attempt in attempts]
        if attempts[-1].traceback:
            parts += _render_block("traceback of the last one", attempts[-1].traceback)
    return Group(*parts, Text())


def _details(task: Task, names: Mapping[int, str], now: datetime) -> Iterator[tuple[str, str | None]]:
    crashes = f", {task.crashes} ended with their process" if task.crashes else ""
    yield "attempts", f"{task.attempts_made} of {task.max_attempts or 'the default of its worker'}{crashes}"
    yield "priority", str(task.priority)
    yield "progress", None if task.progress is None else f"{task.progress:.0%} {task.progress_note or ''}"
    yield "only on", None if task.node_id is None else _node_name(task.node_id, names)
    if task.worker_node_id is not None:
        held_by = "a queue client of " if task.deadline_at is not None else ""
        holder = f"{_node_name(task.worker_node_id, names)}, process {task.process_id}, lease {task.lease}"
        yield "holder", f"{held_by}{holder}"
    yield "timeout", None if task.timeout is None else format_duration(task.timeout)
    yield "unique key", task.unique_key
    yield "limit key", task.limit_key
    yield "trace", task.trace_context
    for name, moment in (
        ("created", task.created_at),
        ("not before", task.start_at),
        ("finish by", task.finish_at),
        ("started", task.worker_started_at),
        ("touched", task.checked_at),
        ("deadline", task.deadline_at),
        ("ended", task.finished_at),
    ):
        yield name, None if moment is None else format_timestamp(moment, now)
    yield "ran for", format_run_time(task) or None
    yield from _reservation_details(task)


def _reservation_details(task: Task) -> Iterator[tuple[str, str]]:
    """What queue clients have given, and how often each of these has happened to it."""
    if task.ttr is not None:
        yield "reserved for", f"{format_duration(float(task.ttr))} at a time (ttr)"
    if task.delay:
        yield "delay", f"{format_duration(float(task.delay))}, as it was last given"
    counters = {name: getattr(task, name) or 0 for name in JOB_COUNTERS}
    if any(counters.values()):
        yield "counters", ", ".join(f"{name} {count:,}" for name, count in counters.items())


def _render_bytes(body: bytes) -> str:
    r"""The first bytes of a body that is no text, in ASCII.

    >>> print(_render_bytes(b"\x89PNG\r\n"))
    6 bytes: \x89PNG\r\n
    """
    shown = repr(body[:MAX_SHOWN_BYTES])[2:-1]
    more = len(body) - MAX_SHOWN_BYTES
    return f"{len(body):,} bytes: {shown}{f' … and {more:,} more' if more > 0 else ''}"


def _indent_json(text: str | None) -> str | None:
    """JSON with indented lines; any other text as it is."""
    try:
        return json.dumps(json.loads(text or ""), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def _render_block(title: str, text: str) -> list[RenderableType]:
    rest = len(text) - MAX_SHOWN_CHARACTERS
    cut = f"\n… and {rest:,} characters more (--json has all)" if rest > 0 else ""
    return [Text(title, "bold"), _indent(Text(sanitize(text[:MAX_SHOWN_CHARACTERS]) + cut))]


def _render_attempt(attempt: Attempt, names: Mapping[int, str], now: datetime) -> RenderableType:
    ran = ""
    if attempt.started_at is not None:
        ran = f" after {format_elapsed((attempt.ended_at - attempt.started_at).total_seconds())}"
    number = f"{attempt.number}" if attempt.number else "not counted"
    node = "" if attempt.node_id is None else f" on {_node_name(attempt.node_id, names)}"
    end = sanitize(f"{ran}{node}, {format_timestamp(attempt.ended_at, now)}")
    lines: list[RenderableType] = [Text.assemble((number, "bold"), ": ", (attempt.outcome, "magenta"), end)]
    if reason := attempt.cause or attempt.error:
        lines.append(_indent(Text(sanitize(reason))))
    return _indent(Group(*lines))


def _indent(item: RenderableType) -> Padding:
    return Padding(item, (0, 0, 0, 2), expand=False)


# ---------------------------------------------------------------- stacks


def stack(
    context: CommandContext,
    task_id: Annotated[int, Argument(metavar="ID", help="A running task.")],
    timeout: Annotated[str, Option(metavar="DURATION", help="Wait at most this long for its node.")] = "20s",
) -> None:
    """Show where the code of a running task is now, on whichever node it runs, and what its process uses."""
    found = context.client.tasks.stack(task_id, timeout=parse_duration_option("--timeout", timeout))
    context.print_result(found, render_stack(found, context.now))


def render_stack(found: TaskStack, now: datetime) -> Group:
    """Where the code of a task is at a moment."""
    since = "" if found.since is None else f" for {format_elapsed((now - found.since).total_seconds())}"
    where = f"task {found.task_id} runs in {sanitize(found.slot)} on {sanitize(found.node)}{since}"
    lines: list[RenderableType] = [Text(where, "bold")]
    if found.process is not None:
        lines.append(Text(found.process.sentence))
    for call in found.calls:
        lines += _render_call(call)
    if found.is_cut:
        lines.append(Text("frames are left out", "yellow"))
    return Group(*lines)


def _render_call(call: CallStack) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(f"{sanitize(call.name)} (most recent call last):", "bold")]
    for frame in call.frames:
        lines.append(Text(f'  File "{sanitize(frame.file)}", line {frame.line}, in {sanitize(frame.function)}'))
        if frame.source:
            lines.append(Text(f"    {sanitize(frame.source)}", "bright_black"))
    return lines
