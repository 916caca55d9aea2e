"""The commands ``peerd queues …``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.cluster.statistics import NOTHING, format_rate, format_seconds
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import STATUS_STYLES, AlignedTable, Column, finding_lines, format_age, format_elapsed_short, right
from peerd.config.problems import suggest_similar
from peerd.domain.lifecycle import Status
from peerd.operate.figures import AttemptFigures
from peerd.store.queue_states import QueueState

app = new_app("List, pause and resume queues.")

QueueNamesArgument = Annotated[list[str], Argument(metavar="QUEUE", help="Names of queues.")]


@command(app, "list")
def list_queues(context: CommandContext) -> None:
    """List all queues that have tasks, or were ever served or paused, with their tasks by status.

    Of the working tasks, those that queue clients hold are counted as reserved too. A count ends at 10,000, which is
    shown as 10,000+; ended tasks are counted among the latest 10,000 of their status. The last column is how long the
    oldest pending task has been due. The columns before it are of the last ten minutes: attempts that succeeded and
    failed, and how long 95 % of the tasks waited at the most.
    """
    queues = context.client.queues.list()
    figures = {row.queue or "": row.figures for row in context.client.statistics.summary("10m")}
    prospects = context.client.queues.prospects() if context.as_json else {}
    answer = [
        {
            **msgspec.to_builtins(queue),
            "last_ten_minutes": msgspec.to_builtins(figures.get(queue.name)),
            "prospect": msgspec.to_builtins(prospects.get(queue.name)),
        }
        for queue in queues
    ]
    context.print_result(
        answer, lambda: _queues_table(queues, figures, context.now) if queues else "no queue has tasks"
    )


@command(app)
def why(context: CommandContext, queue: Annotated[str, Argument(metavar="QUEUE", help="Name of a queue.")]) -> None:
    """Say why tasks of a queue wait, and when they are gone.

    The first thousand are counted. The end is an estimate: it goes by how their number has changed in the last ten
    minutes, and there is none where nothing changed.
    """
    wait = context.client.queues.why(queue)
    if not wait.reasons:
        _warn_unknown(context, queue)
    reasons = finding_lines(wait.reasons) if wait.reasons else ["nothing keeps its tasks waiting"]
    context.print_result(wait, *reasons, *([] if wait.prospect is None else [wait.prospect.sentence]))


@command(app)
def pause(
    context: CommandContext,
    queues: QueueNamesArgument,
    duration: Annotated[
        str | None, Option("--for", metavar="DURATION", help="How long, e.g. 1h; default: until resumed.")
    ] = None,
) -> None:
    """Stop claims from queues; running tasks continue."""
    until = "until it is resumed" if duration is None else f"for {duration}"
    act = partial(context.client.queues.pause, duration=duration)
    context.act_on_each(queues, act, "paused", f"is paused {until}", **{"for": duration})


@command(app)
def resume(context: CommandContext, queues: QueueNamesArgument) -> None:
    """Allow claims from paused queues again."""
    context.act_on_each(queues, context.client.queues.resume, "resumed", "is open")


def _warn_unknown(context: CommandContext, name: str) -> None:
    if context.as_json or context.client.queues.is_known(name):
        return
    known = [queue.name for queue in context.client.queues.list() if queue.known]
    sentence = f"no worker process has ever served {name}"
    context.print_warning("; ".join(filter(None, [sentence, suggest_similar(name, known)])))


def _queues_table(queues: Sequence[QueueState], figures: Mapping[str, AttemptFigures], now: datetime) -> AlignedTable:
    """A row for each queue; a column for each status that occurs, reservations, rates and the oldest pending task."""
    has_reserved = any(queue.reserved for queue in queues)
    fields: list[tuple[Column | str, Callable[[QueueState], Text | str]]] = [
        ("queue", lambda queue: queue.name),
        ("state", lambda queue: _state(queue, now)),
    ]
    for status in Status:
        if any(queue.counts.get(status) for queue in queues):
            fields.append((right(status), partial(_count_of, status)))
        if status is Status.WORKING and has_reserved:
            fields.append((right("reserved"), lambda queue: _count(queue.reserved, STATUS_STYLES[Status.WORKING])))
    if figures:
        fields += [
            (right("done/min"), lambda queue: _rate(figures.get(queue.name))),
            (right("failed/min", drop_priority=1), lambda queue: _failure_rate(figures.get(queue.name))),
            (right("wait p95"), lambda queue: _wait(figures.get(queue.name))),
        ]
    if any(queue.counts.get(Status.PENDING) for queue in queues):
        fields.append((right("oldest"), lambda queue: _oldest(queue, now)))
    return AlignedTable(fields, queues)


def _rate(figures: AttemptFigures | None) -> Text | str:
    return NOTHING if figures is None else format_rate(60 * figures.per_second)


def _wait(figures: AttemptFigures | None) -> Text | str:
    return NOTHING if figures is None else format_seconds(figures.wait.p95)


def _failure_rate(figures: AttemptFigures | None) -> Text:
    failures = 0.0 if figures is None else 60 * figures.failures / figures.seconds
    return Text(format_rate(failures), "red") if failures else NOTHING


def _oldest(queue: QueueState, now: datetime) -> Text:
    """How long the oldest pending task has been due."""
    if queue.oldest_pending_at is None:
        return Text("–", "bright_black")
    return Text(format_elapsed_short(max(0.0, (now - queue.oldest_pending_at).total_seconds())))


def _state(queue: QueueState, now: datetime) -> Text:
    if not queue.known and not queue.reserved:
        return Text("never served", "bold red")
    if not queue.paused:
        return Text("open", "green")
    until = "" if queue.paused_until is None else f", opens {format_age(queue.paused_until, now)}"
    return Text(f"paused{until}", "yellow")


def _count_of(status: Status, queue: QueueState) -> Text:
    return _count(queue.counts.get(status, 0), STATUS_STYLES[status], is_least=status in queue.at_least)


def _count(count: int, style: str, *, is_least: bool = False) -> Text:
    if not count:
        return Text("·", "bright_black")
    return Text(f"{count:,}{'+' if is_least else ''}", style)
