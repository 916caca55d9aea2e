"""What a filter finds is acted on as one bulk action: preview, confirmation, progress, result."""

from __future__ import annotations

import shlex
import time
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import LimitOption
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import (
    Fields,
    LiveDisplay,
    format_age,
    format_timestamp,
    make_key_value_table,
    pluralize,
    render_progress_bar,
    right,
    sanitize,
    wide,
)
from peerd.domain.bulk import RESTRICTED_TO, BulkAction, BulkState
from peerd.store.bulk_chunks import PAUSE_RATIO, ChunkSize

POLL: Final = 0.5
"""Seconds between two looks at a bulk action that a manager carries out."""
MANAGER_CHECK: Final = 5.0
"""Seconds between two looks at whether there is one."""
BAR: Final = 30


def finish(context: CommandContext, bulk: BulkAction, past: str) -> None:
    """Follow a bulk action to its end, and print the result; exit with status 1 if not all went well."""
    try:
        ended = follow(context, bulk)
    except KeyboardInterrupt:
        if not context.as_json:
            left = f"bulk action {bulk.id} is left as it is; peerd bulk watch, pause or cancel {bulk.id}"
            context.err.print(Text(left, "yellow"), soft_wrap=True)
        raise
    lines = [Text(sanitize(f"task {one.task}: {one.error}"), "red") for one in ended.errors]
    if ended.failed > len(ended.errors):
        lines.append(Text(f"… and {ended.failed - len(ended.errors):,} more were refused", "red"))
    if ended.error is not None:
        lines.append(Text(sanitize(f"bulk action {ended.id} failed: {ended.error}"), "red"))
    failed = bool(ended.failed) or ended.state is not BulkState.DONE
    context.print_result(bulk_json(ended), *lines, _summary(ended, past), failed=failed)


def _summary(bulk: BulkAction, past: str) -> Text:
    summary = Text(f"{past} {pluralize(bulk.done, 'task')}", "green" if bulk.done else "")
    if bulk.skipped:
        since = "has changed since it was found" if bulk.skipped == 1 else "have changed since they were found"
        summary.append(f"; {bulk.skipped:,} {since}", "")
    if bulk.state is BulkState.CANCELED:
        summary.append("; it was canceled", "yellow")
    return summary


def follow(context: CommandContext, bulk: BulkAction) -> BulkAction:
    """Show the progress of a bulk action until it has ended; carry it out here where no node runs that would."""
    size, checked_at, has_manager = ChunkSize(), 0.0, False
    with LiveDisplay(context.out, silent=context.as_json or not context.out.is_terminal) as display:
        while not bulk.has_ended:
            if time.monotonic() - checked_at >= MANAGER_CHECK:
                checked_at, has_manager = time.monotonic(), context.client.bulk.has_manager()
            display.update(render_bulk(bulk))
            began, before = time.monotonic(), bulk.done + bulk.examined
            if has_manager or bulk.state is BulkState.PAUSED:
                time.sleep(POLL)
                bulk = context.client.bulk.get(bulk.id)
                continue
            bulk = context.client.bulk.carry_out(bulk.id, size.tasks)
            seconds = time.monotonic() - began
            if bulk.done + bulk.examined > before:
                size.record(seconds)
            time.sleep(max(PAUSE_RATIO * seconds, 0.005))
    return bulk


def render_bulk(bulk: BulkAction) -> Text:
    """A bar, and how many are done of how many."""
    bar = render_progress_bar(bulk.progress, BAR)
    line = Text.assemble(f"  {bulk.action_name}  ", bar, f"  {_describe_done(bulk)}")
    for number, word in ((bulk.skipped, "changed"), (bulk.failed, "refused"), (bulk.postponed, "locked")):
        if number:
            line.append(f", {number:,} {word}")
    if bulk.state is not BulkState.RUNNING:
        line.append(f"  {bulk.state}", "yellow")
    return line


def bulk_json(bulk: BulkAction) -> dict[str, Any]:
    """A bulk action with its progress."""
    return msgspec.structs.asdict(bulk) | {"progress": bulk.progress}


# ---------------------------------------------------------------- the commands


app = new_app("List, show, watch, pause, resume and cancel bulk actions.")

STYLES: Final = {
    BulkState.COUNTING: "cyan",
    BulkState.RUNNING: "bold yellow",
    BulkState.PAUSED: "blue",
    BulkState.CANCELED: "bright_black",
    BulkState.DONE: "green",
    BulkState.FAILED: "bold red",
}
BulkId = Annotated[int, Argument(metavar="ID", help="The bulk action.")]


@command(app, "list")
def list_bulk(
    context: CommandContext,
    state: Annotated[list[str] | None, Option(metavar="STATE", help="Only in this state. Repeatable.")] = None,
    limit: LimitOption = 50,
) -> None:
    """List bulk actions, the newest first."""
    found = context.client.bulk.list(states=state, limit=limit)
    fields: Fields[BulkAction] = (
        (right("id"), lambda bulk: str(bulk.id)),
        ("action", lambda bulk: bulk.action_name),
        ("state", lambda bulk: Text(bulk.state, STYLES[bulk.state])),
        ("", lambda bulk: format_age(bulk.finished_at or bulk.created_at, context.now)),
        (right("done"), _describe_done),
        (right("changed"), lambda bulk: f"{bulk.skipped:,}"),
        (right("refused"), lambda bulk: Text(f"{bulk.failed:,}", "red" if bulk.failed else "")),
        (wide("tasks"), _describe_filter),
    )
    context.print_table([bulk_json(bulk) for bulk in found], fields, found, "there are no such bulk actions")


@command(app)
def show(context: CommandContext, bulk_id: BulkId) -> None:
    """Show a bulk action, and how far it is."""
    bulk = context.client.bulk.get(bulk_id)
    context.print_result(bulk_json(bulk), lambda: _details(bulk, context.now))


@command(app)
def watch(context: CommandContext, bulk_id: BulkId) -> None:
    """Follow a bulk action until it has ended; Ctrl-C leaves it as it is. Where no node runs, carry it out."""
    finish(context, context.client.bulk.get(bulk_id), "acted on")


@command(app)
def pause(context: CommandContext, bulk_id: BulkId) -> None:
    """Stop a bulk action before its next chunk, until it is resumed."""
    _print_state(context, context.client.bulk.pause(bulk_id))


@command(app)
def resume(context: CommandContext, bulk_id: BulkId) -> None:
    """Go on with a bulk action that is paused."""
    _print_state(context, context.client.bulk.resume(bulk_id))


@command(app)
def cancel(context: CommandContext, bulk_id: BulkId) -> None:
    """End a bulk action before its next chunk; what it has done stays done."""
    _print_state(context, context.client.bulk.cancel(bulk_id))


def _print_state(context: CommandContext, bulk: BulkAction) -> None:
    sentence = f"bulk action {bulk.id} is {bulk.state}: {bulk.done:,} of {bulk.matched:,} done"
    context.print_result(bulk_json(bulk), sentence)


def _describe_done(bulk: BulkAction) -> str:
    return f"{bulk.done:,} of {bulk.matched:,}{'+' if bulk.at_least else ''}"


def _describe_filter(bulk: BulkAction) -> str:
    """The filter as the options of the command line."""
    options = [
        (name, str(one))
        for name, value in bulk.filter.items()
        if name != RESTRICTED_TO
        for one in (value if isinstance(value, list) else [value])
    ]
    given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in options) or "all tasks"
    return given if bulk.queues is None else f"{given} (of {', '.join(sorted(bulk.queues))} only)"


def _details(bulk: BulkAction, now: datetime) -> RenderableType:
    arguments = msgspec.to_builtins(bulk.action)
    del arguments["type"]
    pairs: list[tuple[str, Text | str | None]] = [
        ("action", " ".join([bulk.action_name, *(f"{name}={value}" for name, value in arguments.items())])),
        ("tasks", _describe_filter(bulk)),
        ("state", Text(bulk.state, STYLES[bulk.state])),
        ("progress", render_progress_bar(bulk.progress, 20)),
        ("done", f"{_describe_done(bulk)}; {bulk.examined:,} examined"),
        ("changed", f"{bulk.skipped:,} since they were found"),
        ("locked", f"{bulk.postponed:,} rows by other sessions" if bulk.postponed else "–"),
        ("created", format_timestamp(bulk.created_at, now)),
        ("by", bulk.created_by or "–"),
        ("started", format_timestamp(bulk.started_at, now)),
        ("ended", format_timestamp(bulk.finished_at, now)),
        ("error", None if bulk.error is None else Text(sanitize(bulk.error), "red")),
        *[("refused", Text(sanitize(f"task {one.task}: {one.error}"), "red")) for one in bulk.errors],
    ]
    return make_key_value_table(pairs)
