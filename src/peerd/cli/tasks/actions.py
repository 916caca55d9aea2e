"""Actions on tasks by id, or on all that a filter finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from msgspec import UNSET
from rich.text import Text
from typer import Argument, Option

from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.json_argument import read_json_body
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.tasks.show import FILTERS, FilterOptions
from peerd.domain.errors import DatabaseUnavailable, PeerdError, TaskNotFound
from peerd.operate.tasks import TaskFilter

PAGE_SIZE = 500
KICKED_AT_ONCE = 500
"""Tasks of a queue that are kicked if no number is given."""


@dataclass(frozen=True, kw_only=True)
class TaskSelection(FilterOptions):
    """The options of an action: ids, or a filter."""

    ids: Annotated[list[int] | None, Argument(metavar="ID", help="Tasks; or select them with filters.")] = None
    limit: Annotated[
        int | None,
        Option("--limit", "-l", metavar="N", rich_help_panel=FILTERS, help="At most N, as listed."),
    ] = None
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation of what a filter finds.")] = False

    @property
    def is_filter(self) -> bool:
        """Whether tasks are to be found."""
        return self.to_filter() != TaskFilter() or self.limit is not None

    @property
    def is_queue_alone(self) -> bool:
        """Whether nothing but a queue, and the number of tasks, is given."""
        return self.queue is not None and not self.ids and self.to_filter() == TaskFilter(queue=self.queue)

    def find(self, context: CommandContext) -> list[int]:
        """The ids of the tasks."""
        if bool(self.ids) == self.is_filter:
            remedy = "give their ids, or select them with --status, --queue, --name, --node, --search or --where"
            raise CommandError("which tasks?", remedy, status=EXIT_USAGE)
        found = list(self.ids or ())
        cursor: str | None = None
        while self.is_filter and (self.limit is None or len(found) < self.limit):
            size = PAGE_SIZE if self.limit is None else min(PAGE_SIZE, self.limit - len(found))
            page = self.read_page(context.client, after=cursor, limit=size)
            found += [task.id for task in page.items]
            cursor = page.next
            if cursor is None:
                break
        return found


def retry(context: CommandContext, selection: TaskSelection) -> None:
    """Run tasks again at once, with all their attempts, unless they are pending.

    peerd tasks retry 17 18

    peerd tasks retry --status dead --queue video
    """
    _apply_action(context, selection, context.client.tasks.retry, "retry", "retried")


def cancel(
    context: CommandContext,
    selection: TaskSelection,
    reason: Annotated[str, Option(metavar="TEXT", help="Stored as the task's error.")] = "canceled by hand",
) -> None:
    """Cancel tasks that have not ended; running ones too."""
    _apply_action(context, selection, partial(context.client.tasks.cancel, reason=reason), "cancel", "canceled")


def bury(context: CommandContext, selection: TaskSelection) -> None:
    """Set tasks aside that have not ended: nothing runs them until they are kicked or retried; running ones too."""
    _apply_action(context, selection, context.client.tasks.bury, "bury", "buried")


def kick(context: CommandContext, selection: TaskSelection) -> None:
    """Make tasks pending that are buried or scheduled, or wait for another attempt.

    peerd tasks kick 17 18

    peerd tasks kick --queue mails --limit 100

    With --queue alone: its buried tasks, the longest buried first; if there are none, the delayed ones, the soonest due
    first.
    """
    if selection.is_queue_alone:
        _kick_queue(context, selection)
        return
    _apply_action(context, selection, context.client.tasks.kick, "kick", "kicked")


def delete(context: CommandContext, selection: TaskSelection) -> None:
    """Delete tasks and the records of their attempts; running ones too."""
    _apply_action(context, selection, context.client.tasks.delete, "delete", "deleted")


def move(
    context: CommandContext,
    selection: TaskSelection,
    to: Annotated[str | None, Option("--to", metavar="NODE", help="Pin them to this node.")] = None,
    to_any: Annotated[bool, Option("--to-any", help="Let any node run them.")] = False,
    to_queue: Annotated[str | None, Option("--to-queue", metavar="QUEUE", help="Put them into this queue.")] = None,
) -> None:
    """Pin tasks to a node, let any node run them, or put them into another queue.

    A running task is revoked and becomes pending.
    """
    if (to is not None) + to_any + (to_queue is not None) != 1:
        raise CommandError("where to?", "give --to NODE, --to-any, or --to-queue QUEUE", status=EXIT_USAGE)
    tasks = context.client.tasks
    action = partial(tasks.move, node=to) if to_queue is None else partial(tasks.move_to_queue, queue=to_queue)
    _apply_action(context, selection, action, "move", "moved")


def snooze(
    context: CommandContext,
    selection: TaskSelection,
    duration: Annotated[str, Option("--for", metavar="DURATION", help="How long from now, e.g. 1h.")],
) -> None:
    """Let tasks start later.

    A running task is revoked; its attempt is not counted.
    """
    _apply_action(context, selection, partial(context.client.tasks.snooze, duration=duration), "snooze", "snoozed")


def change(
    context: CommandContext,
    selection: TaskSelection,
    priority: Annotated[int | None, Option(metavar="N", help="The larger one is claimed first.")] = None,
    body: Annotated[str | None, Option(metavar="JSON", help="The arguments of the handler; - reads stdin.")] = None,
) -> None:
    """Change the priority or the body of tasks that neither run nor have ended.

    peerd tasks change 17 --priority 20 --body '{"source": "b.mp4"}'
    """
    if priority is None and body is None:
        raise CommandError("change what?", "give --priority N or --body JSON", status=EXIT_USAGE)
    new_body = UNSET if body is None else json.loads(read_json_body(body))
    _apply_action(
        context, selection, partial(context.client.tasks.change, priority=priority, body=new_body), "change", "changed"
    )


def _apply_action(
    context: CommandContext, selection: TaskSelection, action: Callable[..., None], verb: str, past: str
) -> None:
    """Act on each task that still matches the filter; exit with status 1 if one was refused."""
    ids = selection.find(context)
    if ids and selection.is_filter and not selection.yes:
        _confirm(context, f"{verb} {pluralize(len(ids), 'task')}?")
    done: list[int] = []
    refused: list[tuple[int, PeerdError]] = []
    changed: list[int] = []
    for task_id in ids:
        try:
            action(task_id, only=selection.to_filter())
        except DatabaseUnavailable:
            raise
        except PeerdError as error:
            if selection.is_filter and isinstance(error, TaskNotFound):
                changed.append(task_id)
            else:
                refused.append((task_id, error))
        else:
            done.append(task_id)
    lines = [Text(sanitize(f"task {task_id}: {error}"), "red") for task_id, error in refused]
    summary = Text(f"{past} {pluralize(len(done), 'task')}", "green" if done else "")
    if changed:
        since = " has changed since it was found" if len(changed) == 1 else " have changed since they were found"
        summary.append(f"; {len(changed)}{since}", "")
    errors = [{"id": task_id, "error": str(error)} for task_id, error in refused]
    answer = {"verb": past, "tasks": done, "refused": errors, "changed": changed}
    context.print_result(answer, *lines, summary)
    if refused:
        raise typer.Exit(1)


def _kick_queue(context: CommandContext, selection: TaskSelection) -> None:
    assert selection.queue is not None
    limit = KICKED_AT_ONCE if selection.limit is None else selection.limit
    if not selection.yes:
        _confirm(context, f"kick up to {pluralize(limit, 'task')} of {sanitize(selection.queue)}?")
    count = context.client.queues.kick(selection.queue, limit)
    more = "; there may be more" if count == limit else ""
    answer = {"verb": "kicked", "queue": selection.queue, "count": count}
    context.print_result(answer, Text(f"kicked {pluralize(count, 'task')}{more}", "green" if count else ""))


def _confirm(context: CommandContext, question: str) -> None:
    if context.as_json:
        raise CommandError(f"the action on what the filter finds needs a confirmation ({question[:-1]})", "give --yes")
    typer.confirm(question, abort=True, err=True)
