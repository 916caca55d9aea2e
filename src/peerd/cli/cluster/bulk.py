"""The commands ``peerd bulk …``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import format_age, format_timestamp, sanitize
from peerd.cli.output.live_display import render_progress_bar
from peerd.cli.output.tables import AlignedTable, make_key_value_table, right, wide
from peerd.cli.tasks.bulk import bulk_json, finish
from peerd.domain.bulk import RESTRICTED_TO, BulkAction, BulkState

app = new_app("List, show, watch, pause, resume and cancel bulk actions.")

COLUMNS: Final = (right("id"), "action", "state", "", right("done"), right("changed"), right("refused"), wide("tasks"))
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
    limit: Annotated[int, Option("--limit", "-l", help="At most this many.")] = 50,
) -> None:
    """List bulk actions, the newest first."""
    found = context.client.bulk.list(states=state, limit=limit)
    table = _table(found, context.client.now()) if found else "there are no such bulk actions"
    context.print_result([bulk_json(bulk) for bulk in found], table)


@command(app)
def show(context: CommandContext, bulk_id: BulkId) -> None:
    """Show a bulk action, and how far it is."""
    bulk = context.client.bulk.get(bulk_id)
    context.print_result(bulk_json(bulk), lambda: _details(bulk, context.client.now()))


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


def _table(found: Sequence[BulkAction], now: datetime) -> AlignedTable:
    return AlignedTable(COLUMNS, [_row(bulk, now) for bulk in found])


def _row(bulk: BulkAction, now: datetime) -> list[Text | str]:
    return [
        str(bulk.id),
        bulk.action_name,
        Text(bulk.state, STYLES[bulk.state]),
        format_age(bulk.finished_at or bulk.created_at, now),
        f"{bulk.done:,} of {bulk.matched:,}{'+' if bulk.at_least else ''}",
        f"{bulk.skipped:,}",
        Text(f"{bulk.failed:,}", "red" if bulk.failed else ""),
        _describe_filter(bulk),
    ]


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
    pairs: list[tuple[str, Text | str]] = [
        ("action", " ".join([bulk.action_name, *(f"{name}={value}" for name, value in arguments.items())])),
        ("tasks", _describe_filter(bulk)),
        ("state", Text(bulk.state, STYLES[bulk.state])),
        ("progress", render_progress_bar(bulk.progress, 20)),
        ("done", f"{bulk.done:,} of {bulk.matched:,}{'+' if bulk.at_least else ''}; {bulk.examined:,} examined"),
        ("changed", f"{bulk.skipped:,} since they were found"),
        ("locked", f"{bulk.postponed:,} rows by other sessions" if bulk.postponed else "–"),
        ("created", format_timestamp(bulk.created_at, now)),
        ("by", bulk.created_by or "–"),
        ("started", format_timestamp(bulk.started_at, now)),
        ("ended", format_timestamp(bulk.finished_at, now)),
    ]
    pairs += [("error", Text(sanitize(bulk.error), "red"))] if bulk.error is not None else []
    pairs += [("refused", Text(sanitize(f"task {one.task}: {one.error}"), "red")) for one in bulk.errors]
    return make_key_value_table(pairs)
