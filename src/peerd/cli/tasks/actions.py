"""Actions on tasks by id, or on all that a filter finds: these are a bulk action."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from msgspec import UNSET
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import NoWaitOption, parse_duration_option, read_json_body
from peerd.cli.command import CommandContext
from peerd.cli.errors import UsageError
from peerd.cli.output import AlignedTable, pluralize, sanitize
from peerd.cli.tasks.bulk import bulk_json, finish
from peerd.cli.tasks.show import FilterOptions, filter_option, list_json, node_names, task_fields
from peerd.domain.bulk import (
    BulkBury,
    BulkCancel,
    BulkChange,
    BulkDelete,
    BulkKick,
    BulkMove,
    BulkMoveToQueue,
    BulkPreview,
    BulkRetry,
    BulkSnooze,
    TaskAction,
)
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.operate.request import json_text
from peerd.operate.task_filter import TaskFilter

KICKED_AT_ONCE = 500
"""Tasks of a queue that are kicked if no number is given."""


@dataclass(frozen=True, kw_only=True)
class TaskSelection(FilterOptions):
    """The options of an action: ids, or a filter."""

    ids: Annotated[list[int] | None, Argument(metavar="ID", help="Tasks; or select them with filters.")] = None
    limit: Annotated[int | None, filter_option("--limit", "-l", metavar="N", help="At most N, as listed.")] = None
    all_tasks: Annotated[bool, filter_option("--all", help="All tasks, without a filter.")] = False
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation of what a filter finds.")] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what a filter finds.")] = False
    no_wait: NoWaitOption = False

    @property
    def is_filter(self) -> bool:
        """Whether tasks are to be found."""
        return self.to_filter() != TaskFilter() or self.limit is not None or self.all_tasks

    @property
    def is_queue_alone(self) -> bool:
        """Whether nothing but a queue, and the number of tasks, is given."""
        return self.queue is not None and not self.ids and self.to_filter() == TaskFilter(queue=self.queue)

    def check(self) -> None:
        """Refuse neither ids nor a filter, both, and ids with options of a filter."""
        if bool(self.ids) == self.is_filter:
            remedy = "give their ids, or select them with --status, --queue, --name, --node, --search, --where or --all"
            raise UsageError("which tasks?", remedy)
        if self.ids and (self.dry_run or self.no_wait):
            raise UsageError("--dry-run and --no-wait are for what a filter finds")


def retry(context: CommandContext, selection: TaskSelection) -> None:
    """Run tasks again at once, with all their attempts, unless they are pending.

    peerd tasks retry 17 18

    peerd tasks retry --status dead --queue video
    """
    _apply_action(context, selection, context.client.tasks.retry, BulkRetry(), "retry", "retried")


def cancel(
    context: CommandContext,
    selection: TaskSelection,
    reason: Annotated[str, Option(metavar="TEXT", help="Stored as the task's error.")] = "canceled by hand",
) -> None:
    """Cancel tasks that have not ended; running ones too."""
    action = partial(context.client.tasks.cancel, reason=reason)
    _apply_action(context, selection, action, BulkCancel(reason), "cancel", "canceled")


def bury(context: CommandContext, selection: TaskSelection) -> None:
    """Set tasks aside that have not ended: nothing runs them until they are kicked or retried; running ones too."""
    _apply_action(context, selection, context.client.tasks.bury, BulkBury(), "bury", "buried")


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
    _apply_action(context, selection, context.client.tasks.kick, BulkKick(), "kick", "kicked")


def delete(context: CommandContext, selection: TaskSelection) -> None:
    """Delete tasks and the records of their attempts; running ones too."""
    _apply_action(context, selection, context.client.tasks.delete, BulkDelete(), "delete", "deleted")


def move(
    context: CommandContext,
    selection: TaskSelection,
    to: Annotated[str | None, Option("--to", metavar="NODE", help="To this node, which alone may run them.")] = None,
    to_any: Annotated[bool, Option("--to-any", help="Let any node run them.")] = False,
    to_queue: Annotated[str | None, Option("--to-queue", metavar="QUEUE", help="Put them into this queue.")] = None,
) -> None:
    """Move tasks to one node, to any node, or into another queue.

    A running task is revoked and becomes pending.
    """
    if (to is not None) + to_any + (to_queue is not None) != 1:
        raise UsageError("where to?", "give --to NODE, --to-any, or --to-queue QUEUE")
    tasks = context.client.tasks
    action = partial(tasks.move, node=to) if to_queue is None else partial(tasks.move_to_queue, queue=to_queue)
    bulk = BulkMove(to) if to_queue is None else BulkMoveToQueue(to_queue)
    _apply_action(context, selection, action, bulk, "move", "moved")


def snooze(
    context: CommandContext,
    selection: TaskSelection,
    duration: Annotated[str, Option("--for", metavar="DURATION", help="How long from now, e.g. 1h.")],
) -> None:
    """Let tasks start later.

    A running task is revoked; its attempt is not counted.
    """
    action = partial(context.client.tasks.snooze, duration=duration)
    bulk = BulkSnooze(parse_duration_option("--for", duration))
    _apply_action(context, selection, action, bulk, "snooze", "snoozed")


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
        raise UsageError("change what?", "give --priority N or --body JSON")
    new_body = UNSET if body is None else json.loads(read_json_body(body))
    action = partial(context.client.tasks.change, priority=priority, body=new_body)
    bulk = BulkChange(priority=priority, body=None if new_body is UNSET else json_text("body", new_body))
    _apply_action(context, selection, action, bulk, "change", "changed")


def _apply_action(
    context: CommandContext,
    selection: TaskSelection,
    action: Callable[..., None],
    bulk: TaskAction,
    verb: str,
    past: str,
) -> None:
    """Act on each of the tasks, or create a bulk action; exit with status 1 if one was refused."""
    selection.check()
    if selection.is_filter:
        _act_on_filter(context, selection, bulk, verb, past)
        return
    done: list[int] = []
    refused: list[tuple[int, PeerdError]] = []
    for task_id in selection.ids or ():
        try:
            action(task_id)
        except DatabaseUnavailable:
            raise
        except PeerdError as error:
            refused.append((task_id, error))
        else:
            done.append(task_id)
    lines = [Text(sanitize(f"task {task_id}: {error}"), "red") for task_id, error in refused]
    summary = Text(f"{past} {pluralize(len(done), 'task')}", "green" if done else "")
    errors = [{"id": task_id, "error": str(error)} for task_id, error in refused]
    context.print_result({"verb": past, "tasks": done, "refused": errors}, *lines, summary, failed=bool(refused))


def _act_on_filter(context: CommandContext, selection: TaskSelection, action: TaskAction, verb: str, past: str) -> None:
    """Preview what a filter finds, ask, begin a bulk action, and follow it to its end."""
    tasks, most, bulk = selection.to_filter(), selection.limit, context.client.bulk
    all_tasks = selection.all_tasks or most is not None
    preview = bulk.preview(action, tasks, all_tasks=all_tasks)
    count = preview.matched if most is None else min(preview.matched, most)
    at_least = preview.at_least and count == preview.matched and count != most
    if selection.dry_run:
        _show_preview(context, preview, verb, count, at_least=at_least)
        return
    if not count and not preview.at_least:
        context.print_result({"verb": past, "matched": 0, "done": 0}, "no such task")
        return
    if not selection.yes:
        context.confirm(f"{verb} {describe_count(count, at_least=at_least)}?")
    begun = bulk.create(action, tasks, digest=preview.digest, most=most, all_tasks=all_tasks)
    if not selection.no_wait:
        finish(context, begun, past)
        return
    lines = [f"bulk action {begun.id} begins; follow it with: peerd bulk watch {begun.id}"]
    if not bulk.has_manager():
        lines.append("no node runs that carries it out: it waits for one")
    context.print_result(bulk_json(begun), *lines)


def _show_preview(context: CommandContext, preview: BulkPreview, verb: str, count: int, *, at_least: bool) -> None:
    """What would be acted on."""
    names, examples = node_names(context.client), preview.examples[:count]
    shown = [list_json(task, names) for task in examples]
    answer = {"verb": verb, "matched": count, "at_least": at_least, "examples": shown, "digest": preview.digest}
    sentence = f"would {verb} {describe_count(count, at_least=at_least)}"
    table = [lambda: AlignedTable(task_fields(names, context), examples)] if examples else []
    more = [f"… and {count - len(examples):,}{'+' if at_least else ''} more"] if count > len(examples) else []
    context.print_result(answer, sentence, *table, *more)


def describe_count(count: int, *, at_least: bool) -> str:
    """How many tasks.

    >>> describe_count(1, at_least=False), describe_count(10_000, at_least=True)
    ('1 task', '10,000+ tasks')
    """
    return f"{count:,}+ tasks" if at_least else pluralize(count, "task")


def _kick_queue(context: CommandContext, selection: TaskSelection) -> None:
    assert selection.queue is not None
    if selection.dry_run or selection.no_wait:
        remedy = "give another filter too, such as --status buried"
        raise UsageError("--dry-run and --no-wait are not for a queue alone", remedy)
    limit = KICKED_AT_ONCE if selection.limit is None else selection.limit
    if not selection.yes:
        context.confirm(f"kick up to {pluralize(limit, 'task')} of {sanitize(selection.queue)}?")
    count = context.client.queues.kick(selection.queue, limit)
    more = "; there may be more" if count == limit else ""
    answer = {"verb": "kicked", "queue": selection.queue, "count": count}
    context.print_result(answer, Text(f"kicked {pluralize(count, 'task')}{more}", "green" if count else ""))
