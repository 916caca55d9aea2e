"""``peerd tasks stack``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument, Option

from peerd.cli.context import CommandContext
from peerd.cli.errors import parse_duration_option
from peerd.cli.output.formatting import format_elapsed, sanitize
from peerd.domain.task_stack import CallStack, TaskStack


def stack(
    context: CommandContext,
    task_id: Annotated[int, Argument(metavar="ID", help="A running task.")],
    timeout: Annotated[str, Option(metavar="DURATION", help="Wait at most this long for its node.")] = "20s",
) -> None:
    """Show where the code of a running task is now, on whichever node it runs, and what its process uses."""
    found = context.client.tasks.stack(task_id, timeout=parse_duration_option("--timeout", timeout))
    context.print_result(found, render_stack(found, context.client.now()))


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
