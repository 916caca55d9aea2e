"""List, set and remove limits of queues and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.output.tables import AlignedTable, Column, table
from peerd.domain.duration import format_duration
from peerd.domain.limit import WHOLE_QUEUE, Limit
from peerd.domain.task import EACH_KEY
from peerd.store.limits.definitions import LimitState

app = new_app(__doc__, no_args_is_help=True)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.", show_default=False)]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Of the tasks of this limit_key.", show_default=False)
]
EachKeyOption = Annotated[bool, typer.Option("--each-key", help="Of each limit_key that has no limit of its own.")]


@command(app, "list")
def list_limits(
    context: CommandContext,
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Of this queue; without it all.", show_default=False)
    ] = None,
) -> None:
    """List limits, and how much of each is used now."""
    limits = context.client.limits.list(queue)
    if not limits:
        context.answer([], Text("no queue has limits" if queue is None else f"{sanitize(queue)} has no limits"))
    else:
        context.answer(limits, limits_table(limits))


@command(app, "set")
def set_limit(
    context: CommandContext,
    queue: QueueArgument,
    key: KeyOption = None,
    each_key: EachKeyOption = False,
    running: Annotated[
        int | None, typer.Option("--running", metavar="N", help="Tasks at once in the cluster; 0 stops them.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Starts in a period, e.g. 100/1m or 5/s.")
    ] = None,
) -> None:
    """Limit a queue as a whole, one key of it, or each of its keys; what was set for that before is replaced."""
    check_key(key, each_key=each_key)
    limit = context.client.limits.set(queue, key=key, each_key=each_key, running=running, rate=rate)
    context.answer(
        {
            "queue": limit.queue,
            "key": limit.key,
            "running": limit.running,
            "rate": None if limit.rate is None else str(limit.rate),
        },
        Text(f"{describe_subject(limit.queue, limit.key)}: {describe_limit(limit)}"),
    )


@command(app)
def remove(
    context: CommandContext, queue: QueueArgument, key: KeyOption = None, each_key: EachKeyOption = False
) -> None:
    """Remove the limit of a queue as a whole, of one key, or of each key."""
    check_key(key, each_key=each_key)
    removed = context.client.limits.remove(queue, key=key, each_key=each_key)
    limited_key = EACH_KEY if each_key else key or WHOLE_QUEUE
    outcome = "is limited no more" if removed else "had no limit"
    context.answer(
        {"queue": queue, "key": limited_key, "removed": removed},
        Text(f"{describe_subject(queue, limited_key)} {outcome}"),
    )


def check_key(key: str | None, *, each_key: bool) -> None:
    """See that at most one of the two options is given, in the words of the command line.

    Raises:
        Failure: both are, or a key that means something else.
    """
    if key is not None and each_key:
        raise CommandError("two limits at once: give --key or --each-key, not both", status=EXIT_USAGE)
    if key == EACH_KEY:
        raise CommandError(f"--key {EACH_KEY} is no key of a task: --each-key limits each key", status=EXIT_USAGE)


def describe_subject(queue: str, key: str) -> str:
    """What a limit is of, for people.

    >>> describe_subject("uploads", ""), describe_subject("uploads", "*"), describe_subject("uploads", "acme")
    ('uploads', 'each key of uploads', 'key acme of uploads')
    """
    match key:
        case "":
            return sanitize(queue)
        case "*":
            return f"each key of {sanitize(queue)}"
        case _:
            return f"key {sanitize(key)} of {sanitize(queue)}"


def describe_limit(limit: Limit) -> str:
    """What a limit allows, for people."""
    parts = [] if limit.running is None else [f"at most {limit.running:,} at once" if limit.running else "stopped"]
    if limit.rate is not None:
        parts.append(f"at most {pluralize(limit.rate.starts, 'start')} in {format_duration(limit.rate.period)}")
    return ", ".join(parts)


def limits_table(limits: Sequence[LimitState]) -> AlignedTable:
    """Limits for people: what is used, and of how much."""
    columns = (
        Column("queue"),
        Column("key", wide=True),
        Column("running", right=True),
        Column("starts", right=True),
        Column("full keys", right=True),
    )
    return table(columns, [_row(limit) for limit in limits])


def _row(limit: LimitState) -> list[Text]:
    names = {WHOLE_QUEUE: Text("all tasks", "bright_black"), EACH_KEY: Text("each key", "bright_black")}
    period = "" if limit.period is None else f" in {format_duration(limit.period)}"
    return [
        Text(sanitize(limit.queue)),
        names.get(limit.key, Text(sanitize(limit.key))),
        _describe_usage(limit.running_now, limit.running),
        _describe_usage(limit.starts_now, limit.starts, period),
        Text("–") if limit.full_keys is None else Text(f"{limit.full_keys:,}", "yellow" if limit.full_keys else ""),
    ]


def _describe_usage(used: int | None, maximum: int | None, period: str = "") -> Text:
    """How much is used of how much; of each key only how much."""
    if maximum is None:
        return Text("–" if used is None else f"{used:,}")
    if used is None:
        return Text(f"{maximum:,}{period}")
    return Text(f"{used:,} of {maximum:,}{period}", "yellow" if used >= maximum else "green")
