"""The commands ``peerd limits …``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import UsageError
from peerd.cli.output import UNKNOWN, Fields, pluralize, right, wide
from peerd.domain.limit import WHOLE_QUEUE, Limit
from peerd.domain.task import EACH_KEY
from peerd.domain.units import format_duration
from peerd.store.limits import LimitState

app = new_app("List, set and remove limits of queues and keys.")

KEY_WORDS: Final = {WHOLE_QUEUE: Text("all tasks", "bright_black"), EACH_KEY: Text("each key", "bright_black")}
FIELDS: Final[Fields[LimitState]] = (
    ("queue", lambda limit: limit.queue),
    (wide("key"), lambda limit: KEY_WORDS.get(limit.key, limit.key)),
    (right("running"), lambda limit: _describe_usage(limit.running_now, limit.running)),
    (right("starts"), lambda limit: _describe_usage(limit.starts_now, limit.starts, limit.period)),
    (right("full keys"), lambda limit: _describe_full_keys(limit.full_keys)),
)


@dataclass(frozen=True, kw_only=True)
class LimitSubject:
    """The options that say what is limited: a queue, one of its keys, or each of its keys."""

    queue: Annotated[str, Argument(metavar="QUEUE", help="The queue.")]
    key: Annotated[str | None, Option(metavar="KEY", help="Only tasks with this limit_key.")] = None
    each_key: Annotated[bool, Option("--each-key", help="Each limit_key that has no limit of its own.")] = False

    def require_one(self) -> None:
        """Refuse both options at once, and the key that stands for each key in the table."""
        if self.key is not None and self.each_key:
            raise UsageError("two limits at once: give --key or --each-key, not both")
        if self.key == EACH_KEY:
            raise UsageError(f"--key {EACH_KEY} is no key of a task: --each-key limits each key")


@command(app, "list")
def list_limits(
    context: CommandContext,
    queue: Annotated[str | None, Argument(metavar="QUEUE", help="Only of this queue.")] = None,
) -> None:
    """List limits, and how much of each is in use."""
    limits = context.client.limits.list(queue)
    empty = "no queue has limits" if queue is None else f"{queue} has no limits"
    context.print_table(limits, FIELDS, limits, empty)


@command(app, "set")
def set_limit(
    context: CommandContext,
    subject: LimitSubject,
    running: Annotated[
        int | None, Option(metavar="N", help="Tasks that may run at once in the cluster; 0 stops them.")
    ] = None,
    rate: Annotated[str | None, Option(metavar="RATE", help="Starts in a period, e.g. 100/1m or 5/s.")] = None,
) -> None:
    """Limit a queue, one of its keys, or each of its keys; an earlier limit of the same is replaced."""
    subject.require_one()
    limit = context.client.limits.set(
        subject.queue, key=subject.key, each_key=subject.each_key, running=running, rate=rate
    )
    answer = msgspec.structs.asdict(limit) | {"rate": None if limit.rate is None else str(limit.rate)}
    context.print_result(answer, f"{describe_subject(limit.queue, limit.key)}: {_describe_limit(limit)}")


@command(app)
def remove(context: CommandContext, subject: LimitSubject) -> None:
    """Remove the limit of a queue, of one of its keys, or of each of its keys."""
    subject.require_one()
    removed = context.client.limits.remove(subject.queue, key=subject.key, each_key=subject.each_key)
    key = EACH_KEY if subject.each_key else subject.key or WHOLE_QUEUE
    outcome = "is no longer limited" if removed else "had no limit"
    answer = {"queue": subject.queue, "key": key, "removed": removed}
    context.print_result(answer, f"{describe_subject(subject.queue, key)} {outcome}")


def describe_subject(queue: str, key: str) -> str:
    """What a limit applies to.

    >>> describe_subject("uploads", ""), describe_subject("uploads", "*"), describe_subject("uploads", "acme")
    ('uploads', 'each key of uploads', 'key acme of uploads')
    """
    if key == WHOLE_QUEUE:
        return queue
    return f"each key of {queue}" if key == EACH_KEY else f"key {key} of {queue}"


def _describe_limit(limit: Limit) -> str:
    parts = [] if limit.running is None else [f"at most {limit.running:,} at once" if limit.running else "stopped"]
    if limit.rate is not None:
        parts.append(f"at most {pluralize(limit.rate.starts, 'start')} in {format_duration(limit.rate.period)}")
    return ", ".join(parts)


def _describe_usage(used: int | None, maximum: int | None, period: float | None = None) -> Text | str:
    """How much is used, of how much; for each key only the maximum is known."""
    if maximum is None:
        return UNKNOWN if used is None else f"{used:,}"
    most = f"{maximum:,}" if period is None else f"{maximum:,} in {format_duration(period)}"
    if used is None:
        return most
    return Text(f"{used:,} of {most}", "yellow" if used >= maximum else "green")


def _describe_full_keys(count: int | None) -> Text | str:
    return UNKNOWN if count is None else Text(f"{count:,}", "yellow" if count else "")
