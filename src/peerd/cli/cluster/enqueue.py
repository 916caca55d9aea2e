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
from peerd.cli.context import Desk
from peerd.cli.errors import WRONG_USAGE, Failure, seconds_of
from peerd.cli.output.formatting import plain
from peerd.cli.tasks.show import task_json
from peerd.domain.task import BODY_LIMIT
from peerd.operate.job import Job, result_of

app = new_app(__doc__)

_WHEN = "When and where"
_BODY = "Another body than JSON"


@command(app)
def enqueue(
    desk: Desk,
    queue: Annotated[str, typer.Argument(help="The queue.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The handler's name.", show_default=False)] = "",
    body: Annotated[
        str | None,
        typer.Argument(metavar="JSON", help="The body: the handler's arguments; - reads stdin.", show_default=False),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A body that is text.", rich_help_panel=_BODY)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A body of bytes, from a file.", rich_help_panel=_BODY)
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
    start_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before.", rich_help_panel=_WHEN)] = None,
    start_in: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Not before that much time.", rich_help_panel=_WHEN)
    ] = None,
    finish_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Dropped if not started by then.", rich_help_panel=_WHEN)
    ] = None,
    finish_in: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Dropped if not started by then.", rich_help_panel=_WHEN)
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this node may take it.", rich_help_panel=_WHEN)
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
        "text": text if body is None else json_text(body),
        "bytes": None if file is None else read_file(file),
        "priority": priority,
        "max_attempts": max_attempts,
        "timeout": timeout,
        "unique": unique,
        "unique_for": unique_for,
        "limit_key": limit_key,
        "trace_context": trace_context,
        "start_at": moment("--start-at", start_at),
        "start_in": start_in,
        "finish_at": moment("--finish-at", finish_at),
        "finish_in": finish_in,
        "node": node,
    }
    patience = None if wait_for is None else seconds_of("--wait-for", wait_for)
    if body is not None and text is not None:
        raise Failure("two bodies: give JSON or --text, not both", status=WRONG_USAGE)
    job = desk.client.enqueue(queue, **options)
    if wait:
        answer_result(desk, job, patience)
    else:
        answer_job(desk, job, queue)


def answer_job(desk: Desk, job: Job, queue: str) -> None:
    """Say which task it is."""
    task = job.refresh().task
    assert task is not None
    if job.created:
        words = Text.assemble("task ", (str(job.id), "bold"), f" is {task.status} in {plain(queue)}")
    else:
        words = Text.assemble("task ", (str(job.id), "bold"), f" has this key already; it is {task.status}")
    desk.answer({"id": job.id, "created": job.created, "status": task.status}, words)


def answer_result(desk: Desk, job: Job, timeout: float | None) -> None:
    """Wait, and print what the handler returned: JSON, for people too."""
    task = job.wait(timeout)
    result = result_of(task)
    desk.answer(task_json(task, {}) | {"result": result}, Text(plain(json.dumps(result, ensure_ascii=False, indent=2))))


def json_text(body: str) -> str:
    """The JSON that was typed, or comes from stdin; refused before anything is written."""
    written = sys.stdin.read(BODY_LIMIT + 1) if body == "-" else body
    try:
        msgspec.json.decode(written)
    except (ValueError, RecursionError) as error:
        raise Failure(
            f"the body is not JSON: {error}",
            """quote it as the shell needs it: '{"source": "a.mp4"}'; other text goes with --text""",
            status=WRONG_USAGE,
        ) from None
    return written.strip()


def read_file(path: Path) -> bytes:
    """The bytes of a file, which may be a pipe, or endless: one more than may be enqueued are enough to refuse it."""
    try:
        with path.open("rb") as file:
            return file.read(BODY_LIMIT + 1)
    except OSError as error:
        raise Failure(f"{path}: {(error.strerror or str(error)).lower()}") from None


def moment(option: str, text: str | None) -> datetime | None:
    """An ISO 8601 time with its zone.

    >>> moment("--start-at", "2026-11-21T10:30:00+01:00")
    datetime.datetime(2026, 11, 21, 9, 30, tzinfo=datetime.timezone.utc)
    """
    if text is None:
        return None
    remedy = "write it with its zone, e.g. 2026-11-21T09:30:00Z; or use --start-in, --finish-in"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(f"{option}: {text!r} is not a time", remedy, status=WRONG_USAGE) from None
    if found.tzinfo is None:
        raise Failure(f"{option}: {text!r} has no time zone", remedy, status=WRONG_USAGE)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise Failure(f"{option}: {text!r} is too far away", status=WRONG_USAGE) from None
