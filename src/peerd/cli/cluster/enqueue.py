"""``peerd enqueue`` and ``peerd ring``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import parse_duration_option, parse_time_option, read_json_body
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError, UsageError
from peerd.cli.output import sanitize
from peerd.cli.tasks.show import task_json
from peerd.domain.task import BODY_LIMIT
from peerd.operate.job import Job, task_result

app = new_app()

_when = partial(Option, rich_help_panel="When and where")
_body = partial(Option, rich_help_panel="Instead of a JSON body")


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of a task, which `Client.enqueue` has under the same names; it takes a file as bytes."""

    text: Annotated[str | None, _body(metavar="TEXT", help="A body that is text.")] = None
    file: Annotated[Path | None, _body(metavar="PATH", help="A body of bytes, from a file.")] = None
    priority: Annotated[int | None, Option(help="Larger is first; default: 10.")] = None
    max_attempts: Annotated[int | None, Option(help="The maximum number of attempts.")] = None
    timeout: Annotated[str | None, Option(metavar="DURATION", help="The longest run of an attempt.")] = None
    unique: Annotated[str | None, Option(metavar="KEY", help="Allow only one task with this key.")] = None
    unique_for: Annotated[
        str | None, Option(metavar="SCOPE", help="How long the key holds: unfinished, forever, or a duration.")
    ] = None
    limit_key: Annotated[str | None, Option(metavar="KEY", help="The key that limits count, e.g. a customer.")] = None
    trace_context: Annotated[str | None, Option(metavar="TRACEPARENT", help="W3C trace context.")] = None
    start_at: Annotated[str | None, _when(metavar="TIME", help="The earliest start.")] = None
    start_in: Annotated[str | None, _when(metavar="DURATION", help="The earliest start, from now.")] = None
    finish_at: Annotated[str | None, _when(metavar="TIME", help="Drop it unless started by then.")] = None
    finish_in: Annotated[str | None, _when(metavar="DURATION", help="Drop it unless started by then.")] = None
    node: Annotated[str | None, _when(metavar="NODE", help="Only this node may run it.")] = None


@command(app)
def enqueue(
    context: CommandContext,
    queue: Annotated[str, Argument(help="The queue.")],
    options: TaskOptions,
    name: Annotated[str, Argument(metavar="HANDLER", help="The handler.")] = "",
    body: Annotated[
        str | None, Argument(metavar="JSON", help="The body: the handler's arguments; - reads stdin.")
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Wait until it has ended, and print its result.")] = False,
    wait_for: Annotated[str | None, Option(metavar="DURATION", help="With --wait: at most this long.")] = None,
) -> None:
    """Enqueue a task.

    peerd enqueue video transcode '{"source": "a.mp4"}' --priority 20 --start-in 10m

    A TIME is ISO 8601 with its zone, e.g. 2026-11-21T09:30:00Z. A DURATION is e.g. 500ms, 10s, 1h30m.
    """
    if body is not None and options.text is not None:
        raise UsageError("two bodies: give JSON or --text, not both")
    timeout_seconds = None if wait_for is None else parse_duration_option("--wait-for", wait_for)
    arguments: dict[str, Any] = asdict(options) | {
        "name": name,
        "text": options.text if body is None else read_json_body(body),
        "bytes": None if options.file is None else _read_body_file(options.file),
        "start_at": parse_time_option("--start-at", options.start_at),
        "finish_at": parse_time_option("--finish-at", options.finish_at),
    }
    del arguments["file"]
    warning = None if options.file is not None else context.client.queues.misfit(queue, name, arguments["text"])
    job = context.client.enqueue(queue, **arguments)
    if warning is not None:
        context.print_warning(f"{warning}. Task {job.id} waits for a node with such code; or cancel it")
    if wait:
        _print_job_result(context, job, timeout_seconds)
    else:
        _print_job(context, job, queue, warning)


def _print_job(context: CommandContext, job: Job, queue: str, warning: str | None) -> None:
    task = job.refresh().task
    assert task is not None
    state = f" is {task.status} in {sanitize(queue)}" if job.created else f" has this key already; it is {task.status}"
    answer = {"id": job.id, "created": job.created, "status": task.status, "warning": warning}
    context.print_result(answer, Text.assemble("task ", (str(job.id), "bold"), state))


def _print_job_result(context: CommandContext, job: Job, timeout: float | None) -> None:
    """Wait, and print what the handler returned, as JSON also for people."""
    task = job.wait(timeout)
    result = task_result(task)
    context.print_result(task_json(task, {}) | {"result": result}, json.dumps(result, ensure_ascii=False, indent=2))


def _read_body_file(path: Path) -> bytes:
    """The bytes of a file or a pipe, up to one more than is allowed: an endless one is refused too."""
    with path.open("rb") as file:
        return file.read(BODY_LIMIT + 1)


@command(app, of_this_machine=True)
def ring(
    context: CommandContext,
    queues: Annotated[
        list[str] | None, Argument(metavar="QUEUE", help="Queues that have new tasks; default: any.")
    ] = None,
) -> None:
    """Ring all nodes' doorbells, after tasks were inserted with SQL.

    Tasks that peerd enqueues ring by themselves. A ring is not acknowledged: if one is lost, the tasks are found by the
    next poll.
    """
    names = queues or []
    context.client.ring(*names)
    notifier = context.client.notifier
    if not notifier.flush() or notifier.last_error:
        raise CommandError(f"no node was rung: {notifier.last_error or 'the database does not answer'}")
    if notifier.has_no_secret:
        remedy = "give the nodes and this machine the same [cluster] secret_file"
        raise CommandError("no node was rung: there is no secret", remedy)
    context.print_result({"rung": names}, f"rung for {', '.join(names) or 'any queue'}")
