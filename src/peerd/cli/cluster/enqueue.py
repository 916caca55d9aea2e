"""Enqueue a task."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError, parse_duration_option
from peerd.cli.output.formatting import sanitize
from peerd.cli.tasks.show import task_json
from peerd.domain.task import BODY_LIMIT
from peerd.operate.job import Job, task_result

app = new_app(__doc__)

_TIME_PANEL = "When and where"
_BODY_PANEL = "Another body than JSON"


@command(app)
def enqueue(
    context: CommandContext,
    queue: Annotated[str, typer.Argument(help="The queue.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The handler's name.", show_default=False)] = "",
    body: Annotated[
        str | None,
        typer.Argument(metavar="JSON", help="The body: the handler's arguments; - reads stdin.", show_default=False),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A body that is text.", rich_help_panel=_BODY_PANEL)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A body of bytes, from a file.", rich_help_panel=_BODY_PANEL)
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Larger first; 10 if not given.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts at the most.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="An attempt's longest run.")] = None,
    unique: Annotated[str | None, typer.Option(metavar="KEY", help="Only one task of this key.")] = None,
    unique_for: Annotated[
        str | None, typer.Option(metavar="SCOPE", help="How long the key holds: unfinished, forever, or a duration.")
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="By whom limits count it, e.g. a customer.")
    ] = None,
    trace_context: Annotated[str | None, typer.Option(metavar="TRACEPARENT", help="W3C trace context.")] = None,
    start_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before.", rich_help_panel=_TIME_PANEL)
    ] = None,
    start_in: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Not before that much time.", rich_help_panel=_TIME_PANEL)
    ] = None,
    finish_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Dropped if not started by then.", rich_help_panel=_TIME_PANEL)
    ] = None,
    finish_in: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Dropped if not started by then.", rich_help_panel=_TIME_PANEL),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this node may take it.", rich_help_panel=_TIME_PANEL)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and print its result.")] = False,
    wait_for: Annotated[str | None, typer.Option(metavar="DURATION", help="With --wait: at most this long.")] = None,
) -> None:
    """Enqueue a task.

    peerd enqueue video transcode '{"source": "a.mp4"}' --priority 20 --start-in 10m

    A TIME is ISO 8601 with its zone, e.g. 2026-11-21T09:30:00Z. A DURATION is e.g. 500ms, 10s, 1h30m.
    """
    options: dict[str, Any] = {
        "name": name,
        "text": text if body is None else read_json_body(body),
        "bytes": None if file is None else read_body_file(file),
        "priority": priority,
        "max_attempts": max_attempts,
        "timeout": timeout,
        "unique": unique,
        "unique_for": unique_for,
        "limit_key": limit_key,
        "trace_context": trace_context,
        "start_at": parse_time_option("--start-at", start_at),
        "start_in": start_in,
        "finish_at": parse_time_option("--finish-at", finish_at),
        "finish_in": finish_in,
        "node": node,
    }
    timeout_seconds = None if wait_for is None else parse_duration_option("--wait-for", wait_for)
    if body is not None and text is not None:
        raise CommandError("two bodies: give JSON or --text, not both", status=EXIT_USAGE)
    job = context.client.enqueue(queue, **options)
    if wait:
        print_job_result(context, job, timeout_seconds)
    else:
        print_job(context, job, queue)


def print_job(context: CommandContext, job: Job, queue: str) -> None:
    """Say which task it is."""
    task = job.refresh().task
    assert task is not None
    if job.created:
        words = Text.assemble("task ", (str(job.id), "bold"), f" is {task.status} in {sanitize(queue)}")
    else:
        words = Text.assemble("task ", (str(job.id), "bold"), f" has this key already; it is {task.status}")
    context.answer({"id": job.id, "created": job.created, "status": task.status}, words)


def print_job_result(context: CommandContext, job: Job, timeout: float | None) -> None:
    """Wait, and print what the handler returned: JSON, for people too."""
    task = job.wait(timeout)
    result = task_result(task)
    context.answer(
        task_json(task, {}) | {"result": result}, Text(sanitize(json.dumps(result, ensure_ascii=False, indent=2)))
    )


def read_json_body(body: str) -> str:
    """The JSON that was typed, or comes from stdin; refused before anything is written."""
    written = sys.stdin.read(BODY_LIMIT + 1) if body == "-" else body
    try:
        msgspec.json.decode(written)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"the body is not JSON: {error}",
            """quote it as the shell needs it: '{"source": "a.mp4"}'; other text goes with --text""",
            status=EXIT_USAGE,
        ) from None
    return written.strip()


def read_body_file(path: Path) -> bytes:
    """The bytes of a file, which may be a pipe, or endless: one more than may be enqueued are enough to refuse it."""
    try:
        with path.open("rb") as file:
            return file.read(BODY_LIMIT + 1)
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def parse_time_option(option: str, text: str | None) -> datetime | None:
    """An ISO 8601 time with its zone.

    >>> parse_time_option("--start-at", "2026-11-21T10:30:00+01:00")
    datetime.datetime(2026, 11, 21, 9, 30, tzinfo=datetime.timezone.utc)
    """
    if text is None:
        return None
    remedy = "write it with its zone, e.g. 2026-11-21T09:30:00Z; or use --start-in, --finish-in"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{option}: {text!r} is not a time", remedy, status=EXIT_USAGE) from None
    if found.tzinfo is None:
        raise CommandError(f"{option}: {text!r} has no time zone", remedy, status=EXIT_USAGE)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise CommandError(f"{option}: {text!r} is too far away", status=EXIT_USAGE) from None
