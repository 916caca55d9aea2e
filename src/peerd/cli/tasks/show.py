"""``peerd tasks show``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import format_elapsed, format_timestamp, sanitize, status_text
from peerd.cli.output.tables import make_key_value_table
from peerd.domain.duration import format_duration
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.operate.client import Client

MAX_SHOWN_CHARACTERS = 4_000
"""Characters of a body, a result or a traceback that are shown to people."""


def show(
    context: CommandContext,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Tasks.", show_default=False)],
) -> None:
    """Show tasks in full, with their attempts."""
    names = node_names(context.client)
    found = [(context.client.tasks.get(task_id), context.client.tasks.attempts(task_id)) for task_id in ids]
    answer = [task_json(task, names) | {"failed_attempts": attempts} for task, attempts in found]
    context.answer(
        answer if len(answer) > 1 else answer[0],
        *[render_task(task, attempts, names, context.client.now()) for task, attempts in found if not context.as_json],
    )


def node_names(client: Client) -> dict[int, str]:
    """The nodes' names by their ids."""
    return {node.id: node.name for node in client.nodes.list()}


def attempts_made(task: Task) -> int:
    """Attempts that were made: the column leaves out the one that runs, and the one that succeeded."""
    return task.attempts + (task.status in (Status.WORKING, Status.DONE))


def task_json(task: Task, names: Mapping[int, str]) -> dict[str, Any]:
    """A task for programs: its columns, and the names of the nodes that they mean."""
    row: dict[str, Any] = msgspec.to_builtins(task)
    row["node"] = None if task.node_id is None else names.get(task.node_id)
    row["worker_node"] = None if task.worker_node_id is None else names.get(task.worker_node_id)
    return row


def render_task(task: Task, attempts: Sequence[Attempt], names: Mapping[int, str], now: datetime) -> RenderableType:
    """A task for people."""
    title = Text.assemble(
        (f"task {task.id} ", "bold"), sanitize(f"{task.queue}/{task.name}" if task.name else task.queue), " is ",
        status_text(task.status),
    )  # fmt: skip
    parts: list[RenderableType] = [title, make_key_value_table(_details(task, names, now))]
    for what, text in (("body", _format_body(task)), ("result", _indent_json(task.result)), ("error", task.error)):
        if text:
            parts += _render_block(what, text)
    if attempts:
        parts.append(Text("attempts that did not succeed", "bold"))
        parts += [_render_attempt(attempt, names, now) for attempt in attempts]
        if attempts[-1].traceback:
            parts += _render_block("the last one's traceback", attempts[-1].traceback)
    return Group(*parts, Text())


def _details(task: Task, names: Mapping[int, str], now: datetime) -> Iterator[tuple[str, Text | str]]:
    crashes = f", {task.crashes} took their process with them" if task.crashes else ""
    yield "attempts", f"{attempts_made(task)} of {task.max_attempts or 'what its worker allows'}{crashes}"
    yield "priority", str(task.priority)
    if task.progress is not None:
        yield "progress", sanitize(f"{task.progress:.0%} {task.progress_note or ''}")
    if task.node_id is not None:
        yield "only on", sanitize(names.get(task.node_id, f"node {task.node_id}"))
    if task.worker_node_id is not None:
        node = names.get(task.worker_node_id, f"node {task.worker_node_id}")
        yield "holder", sanitize(f"{node}, process {task.process_id}, lease {task.lease}")
    if task.timeout is not None:
        yield "timeout", format_duration(task.timeout)
    yield from _key_details(task)
    for name, moment in (
        ("created", task.created_at),
        ("not before", task.start_at),
        ("finish by", task.finish_at),
        ("started", task.worker_started_at),
        ("touched", task.checked_at),
        ("ended", task.finished_at),
    ):
        if moment is not None:
            yield name, format_timestamp(moment, now)
    if task.worker_started_at is not None and task.finished_at is not None:
        yield "ran for", format_elapsed((task.finished_at - task.worker_started_at).total_seconds())
    if task.trace_context is not None:
        yield "trace", sanitize(task.trace_context)


def _key_details(task: Task) -> Iterator[tuple[str, str]]:
    for name, key in (("unique key", task.unique_key), ("limit key", task.limit_key)):
        if key is not None:
            yield name, sanitize(key)


def _format_body(task: Task) -> str | None:
    if task.body_bytes is not None:
        return f"{len(task.body_bytes):,} bytes"
    return _indent_json(task.body)


def _indent_json(text: str | None) -> str | None:
    """JSON with its lines indented; other text as it is."""
    try:
        return json.dumps(json.loads(text or ""), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def _render_block(title: str, text: str) -> list[RenderableType]:
    cut = (
        f"\n… and {len(text) - MAX_SHOWN_CHARACTERS:,} characters more (--json has all)"
        if len(text) > MAX_SHOWN_CHARACTERS
        else ""
    )
    return [Text(title, "bold"), _indent(Text(sanitize(text[:MAX_SHOWN_CHARACTERS]) + cut))]


def _render_attempt(attempt: Attempt, names: Mapping[int, str], now: datetime) -> RenderableType:
    ran = ""
    if attempt.started_at is not None:
        ran = f" after {format_elapsed((attempt.ended_at - attempt.started_at).total_seconds())}"
    number = f"{attempt.number}" if attempt.number else "not counted"
    node = "" if attempt.node_id is None else f" on {names.get(attempt.node_id, f'node {attempt.node_id}')}"
    head = Text.assemble(
        (number, "bold"),
        ": ",
        (attempt.outcome, "magenta"),
        sanitize(f"{ran}{node}, {format_timestamp(attempt.ended_at, now)}"),
    )
    why = attempt.cause or attempt.error or ""
    return _indent(Group(head, *([_indent(Text(sanitize(why)))] if why else [])))


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2), expand=False)
