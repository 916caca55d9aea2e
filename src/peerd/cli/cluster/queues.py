"""List, pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import STATUS_STYLES, format_age, sanitize
from peerd.cli.output.tables import AlignedTable, Column, table
from peerd.config.reading.suggestions import suggest_similar
from peerd.domain.lifecycle import Status
from peerd.store.queues import QueueState

app = new_app(__doc__, no_args_is_help=True)

QueueNamesArgument = Annotated[list[str], typer.Argument(metavar="QUEUE", help="Names of queues.", show_default=False)]


@command(app, "list")
def list_queues(context: CommandContext) -> None:
    """List all queues that have tasks, or were ever served or paused, with their tasks by status."""
    queues = context.client.queues.list()
    if not queues:
        context.answer([], Text("no queue has tasks"))
    else:
        context.answer(queues, lambda: queues_table(queues, context.client.now()))


@command(app)
def pause(
    context: CommandContext,
    queues: QueueNamesArgument,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long, e.g. 1h; without it until resume.")
    ] = None,
) -> None:
    """Let nobody claim from queues; running tasks go on."""
    unknown = _find_unknown(context, queues)
    for name in queues:
        context.client.queues.pause(name, duration)
    until = "until it is resumed" if duration is None else f"for {duration}"
    _warn_unknown(context, unknown)
    context.answer(
        {"paused": queues, "for": duration, "unknown": unknown},
        *[Text(f"{sanitize(name)} is paused {until}") for name in queues],
    )


@command(app)
def resume(context: CommandContext, queues: QueueNamesArgument) -> None:
    """Let queues be claimed from again."""
    unknown = _find_unknown(context, queues)
    for name in queues:
        context.client.queues.resume(name)
    _warn_unknown(context, unknown)
    context.answer({"resumed": queues, "unknown": unknown}, *[Text(f"{sanitize(name)} is open") for name in queues])


def _find_unknown(context: CommandContext, queues: Sequence[str]) -> list[str]:
    """Those that nobody has served or paused so far: perhaps they are mistyped."""
    return [name for name in queues if not context.client.queues.is_known(name)]


def _warn_unknown(context: CommandContext, unknown: Sequence[str]) -> None:
    if not unknown or context.as_json:
        return
    known = [queue.name for queue in context.client.queues.list() if queue.known and queue.name not in unknown]
    for name in unknown:
        sentence = f"no worker process has ever served {sanitize(name)}"
        context.warn("; ".join(filter(None, [sentence, suggest_similar(name, known)])))


def queues_table(queues: Sequence[QueueState], now: datetime) -> AlignedTable:
    """Queues for people: a column for each status that occurs."""
    statuses = [status for status in Status if any(queue.counts.get(status) for queue in queues)]
    columns = [Column("queue"), Column("state"), *[Column(status, right=True) for status in statuses]]
    return table(columns, [_row(queue, statuses, now) for queue in queues])


def _row(queue: QueueState, statuses: Sequence[Status], now: datetime) -> list[Text]:
    if not queue.known:
        state = Text("never served", "bold red")
    elif not queue.paused:
        state = Text("open", "green")
    elif queue.paused_until is None:
        state = Text("paused", "yellow")
    else:
        state = Text(f"paused, opens {format_age(queue.paused_until, now)}", "yellow")
    counts = [queue.counts.get(status, 0) for status in statuses]
    cells = [
        Text(f"{count:,}", STATUS_STYLES[status]) if count else Text("·", "bright_black")
        for count, status in zip(counts, statuses, strict=True)
    ]
    return [Text(sanitize(queue.name)), state, *cells]
