"""`peerd tasks retry | cancel | bury | kick | delete | move`: on tasks by id, or on all that a filter finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.tasks.show import FILTERS, FilterOptions
from peerd.domain.errors import DatabaseUnavailable, PeerdError, TaskNotFound

PAGE_SIZE = 500
KICKED_AT_ONCE = 500
"""Tasks of a queue that are kicked if no number is given."""


@dataclass(frozen=True, kw_only=True)
class TaskSelection(FilterOptions):
    """The options of an action: ids, or a filter."""

    ids: Annotated[list[int] | None, Argument(metavar="ID", help="Tasks; or select them with filters.")] = None
    limit: Annotated[
        int | None, Option("--limit", "-l", metavar="N", rich_help_panel=FILTERS, help="At most N, the newest.")
    ] = None
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation of what a filter finds.")] = False

    @property
    def is_filter(self) -> bool:
        """Whether tasks are to be found."""
        return any(option is not None for option in (self.queue, self.name, self.status, self.node, self.limit))

    @property
    def is_queue_alone(self) -> bool:
        """Whether nothing but a queue, and the number of tasks, is given."""
        return self.queue is not None and (self.ids, self.name, self.status, self.node) == (None, None, None, None)

    def find(self, context: CommandContext) -> list[int]:
        """The ids of the tasks."""
        if bool(self.ids) == self.is_filter:
            remedy = "give their ids, or select them with --status, --queue, --name or --node"
            raise CommandError("which tasks?", remedy, status=EXIT_USAGE)
        found = list(self.ids or ())
        while self.is_filter and (self.limit is None or len(found) < self.limit):
            size = PAGE_SIZE if self.limit is None else min(PAGE_SIZE, self.limit - len(found))
            page = self.list_page(context.client, before=found[-1] if found else None, limit=size)
            found += [task.id for task in page]
            if len(page) < size:
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
) -> None:
    """Pin tasks to a node, or let any node run them.

    A running task is revoked and becomes pending.
    """
    if (to is None) != to_any:
        raise CommandError("where to?", "give --to NODE, or --to-any", status=EXIT_USAGE)
    _apply_action(context, selection, partial(context.client.tasks.move, node=to), "move", "moved")


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
