"""``peerd tasks retry``, ``cancel``, ``delete`` and ``move``: on tasks by id, or on all that a filter finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.tasks.options import NameOption, NodeOption, QueueOption, StatusOption
from peerd.domain.errors import DatabaseUnavailable, PeerdError, TaskNotFound
from peerd.operate.tasks import TaskFilter

PAGE_SIZE = 500

IdsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="ID", help="Tasks; or find them by the filters.", show_default=False)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before acting on what a filter finds.")]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", "-l", metavar="N", rich_help_panel="Which tasks", help="N of those found, the newest."),
]


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """Which tasks: named ones, or those that a filter finds."""

    ids: list[int]
    queue: str | None = None
    name: str | None = None
    status: str | None = None
    node: str | None = None
    limit: int | None = None

    @property
    def is_filter(self) -> bool:
        """Whether it says what tasks to find."""
        return any(one is not None for one in (self.queue, self.name, self.status, self.node, self.limit))

    @property
    def only(self) -> TaskFilter:
        """What a task that was found must still be when it is acted upon."""
        return TaskFilter(self.queue, self.name, self.status, self.node)

    def find(self, context: CommandContext) -> list[int]:
        """The ids of the tasks.

        Raises:
            Failure: it is neither ids nor a filter, or both.
        """
        if bool(self.ids) == self.is_filter:
            remedy = "name their ids, or find them with --status, --queue, --name or --node"
            raise CommandError("which tasks?", remedy, status=EXIT_USAGE)
        return self.ids or self._find_by_filter(context)

    def _find_by_filter(self, context: CommandContext) -> list[int]:
        found_ids: list[int] = []
        while self.limit is None or len(found_ids) < self.limit:
            size = PAGE_SIZE if self.limit is None else min(PAGE_SIZE, self.limit - len(found_ids))
            page = context.client.tasks.list(
                queue=self.queue, name=self.name, status=self.status, node=self.node, limit=size,
                before=found_ids[-1] if found_ids else None, bodies=False,
            )  # fmt: skip
            found_ids += [task.id for task in page]
            if len(page) < size:
                break
        return found_ids


@dataclass(slots=True)
class ActionReport:
    """What was done, and what was refused."""

    verb: str
    done: list[int] = field(default_factory=list)
    refused: list[tuple[int, PeerdError]] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    """What a filter had found, and is not so any more, or not there."""

    def answer(self, context: CommandContext) -> None:
        """Say it; exit status 1 when anything was refused."""
        errors = [{"id": task_id, "error": str(error)} for task_id, error in self.refused]
        lines = [Text(sanitize(f"task {task_id}: {error}"), "red") for task_id, error in self.refused]
        has = "has" if len(self.changed) == 1 else "have"
        left = f"; {len(self.changed)} {has} changed since {'it was' if has == 'has' else 'they were'} found"
        summary = Text(f"{self.verb} {pluralize(len(self.done), 'task')}", "green" if self.done else "")
        summary.append(left if self.changed else "", "")
        answer = {"verb": self.verb, "tasks": self.done, "refused": errors, "changed": self.changed}
        context.answer(answer, *lines, summary)
        if self.refused:
            raise typer.Exit(1)


def retry(
    context: CommandContext,
    ids: IdsArgument = None,
    queue: QueueOption = None,
    name: NameOption = None,
    status: StatusOption = None,
    node: NodeOption = None,
    limit: LimitOption = None,
    yes: YesOption = False,
) -> None:
    """Let tasks run again at once, with all their attempts; whatever became of them.

    peerd tasks retry 17 18        peerd tasks retry --status dead --queue video
    """
    selection = TaskSelection(ids or [], queue, name, status, node, limit)
    _apply_action(context, selection, context.client.tasks.retry, "retry", "retried", yes=yes)


def cancel(
    context: CommandContext,
    ids: IdsArgument = None,
    queue: QueueOption = None,
    name: NameOption = None,
    status: StatusOption = None,
    node: NodeOption = None,
    limit: LimitOption = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever looks.")] = "canceled by hand",
    yes: YesOption = False,
) -> None:
    """End tasks that have not ended; running ones too."""
    selection = TaskSelection(ids or [], queue, name, status, node, limit)
    _apply_action(
        context, selection, partial(context.client.tasks.cancel, reason=reason), "cancel", "canceled", yes=yes
    )


def delete(
    context: CommandContext,
    ids: IdsArgument = None,
    queue: QueueOption = None,
    name: NameOption = None,
    status: StatusOption = None,
    node: NodeOption = None,
    limit: LimitOption = None,
    yes: YesOption = False,
) -> None:
    """Delete tasks and their attempts; running ones too. Nothing of them stays."""
    selection = TaskSelection(ids or [], queue, name, status, node, limit)
    _apply_action(context, selection, context.client.tasks.delete, "delete", "deleted", yes=yes)


def move(
    context: CommandContext,
    ids: IdsArgument = None,
    to: Annotated[str | None, typer.Option("--to", metavar="NODE", help="To this node.")] = None,
    to_any: Annotated[bool, typer.Option("--to-any", help="To any node.", show_default=False)] = False,
    queue: QueueOption = None,
    name: NameOption = None,
    status: StatusOption = None,
    node: NodeOption = None,
    limit: LimitOption = None,
    yes: YesOption = False,
) -> None:
    """Give tasks to a node, or to any. A running one is taken from its holder and becomes pending."""
    if (to is None) != to_any:
        raise CommandError("where to?", "give --to NODE, or --to-any", status=EXIT_USAGE)
    selection = TaskSelection(ids or [], queue, name, status, node, limit)
    _apply_action(context, selection, partial(context.client.tasks.move, node=to), "move", "moved", yes=yes)


def _apply_action(
    context: CommandContext, selection: TaskSelection, action: Callable[..., None], verb: str, done: str, *, yes: bool
) -> None:
    ids = selection.find(context)
    report = ActionReport(done)
    if ids and selection.is_filter and not yes:
        _confirm(context, f"{verb} {pluralize(len(ids), 'task')}?")
    for task_id in ids:
        try:
            action(task_id, only=selection.only)
        except DatabaseUnavailable:
            raise
        except TaskNotFound as error:
            if selection.is_filter:
                report.changed.append(task_id)
            else:
                report.refused.append((task_id, error))
        except PeerdError as error:
            report.refused.append((task_id, error))
        else:
            report.done.append(task_id)
    report.answer(context)


def _confirm(context: CommandContext, question: str) -> None:
    if context.as_json:
        raise CommandError(f"a filter found tasks to act on ({question[:-1]})", "say --yes")
    typer.confirm(question, abort=True, err=True)
