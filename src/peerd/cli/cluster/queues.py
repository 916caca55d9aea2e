"""List, pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.output.formatting import STYLES, ago, plain
from peerd.cli.output.tables import Column, Rows, table
from peerd.config.reading.suggestions import near
from peerd.domain.lifecycle import Status
from peerd.store.queues import QueueState

app = new_app(__doc__, no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="QUEUE", help="Names of queues.", show_default=False)]


@command(app, "list")
def list_queues(desk: Desk) -> None:
    """List all queues that have tasks, or were ever served or paused, with their tasks by status."""
    queues = desk.client.queues.list()
    if not queues:
        desk.answer([], Text("no queue has tasks"))
    else:
        desk.answer(queues, lambda: queues_table(queues, desk.client.now()))


@command(app)
def pause(
    desk: Desk,
    queues: Names,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long, e.g. 1h; without it until resume.")
    ] = None,
) -> None:
    """Let nobody claim from queues; running tasks go on."""
    unknown = _unknown(desk, queues)
    for name in queues:
        desk.client.queues.pause(name, duration)
    until = "until it is resumed" if duration is None else f"for {duration}"
    _warn_of(desk, unknown)
    desk.answer(
        {"paused": queues, "for": duration, "unknown": unknown},
        *[Text(f"{plain(name)} is paused {until}") for name in queues],
    )


@command(app)
def resume(desk: Desk, queues: Names) -> None:
    """Let queues be claimed from again."""
    unknown = _unknown(desk, queues)
    for name in queues:
        desk.client.queues.resume(name)
    _warn_of(desk, unknown)
    desk.answer({"resumed": queues, "unknown": unknown}, *[Text(f"{plain(name)} is open") for name in queues])


def _unknown(desk: Desk, queues: Sequence[str]) -> list[str]:
    """Those that nobody has served or paused so far: perhaps they are mistyped."""
    return [name for name in queues if not desk.client.queues.is_known(name)]


def _warn_of(desk: Desk, unknown: Sequence[str]) -> None:
    if not unknown or desk.as_json:
        return
    known = [queue.name for queue in desk.client.queues.list() if queue.known and queue.name not in unknown]
    for name in unknown:
        sentence = f"no worker process has ever served {plain(name)}"
        desk.warn("; ".join(filter(None, [sentence, near(name, known)])))


def queues_table(queues: Sequence[QueueState], now: datetime) -> Rows:
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
        state = Text(f"paused, opens {ago(queue.paused_until, now)}", "yellow")
    counts = [queue.counts.get(status, 0) for status in statuses]
    cells = [
        Text(f"{count:,}", STYLES[status]) if count else Text("·", "bright_black")
        for count, status in zip(counts, statuses, strict=True)
    ]
    return [Text(plain(queue.name)), state, *cells]
