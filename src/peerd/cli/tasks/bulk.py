"""What a filter finds is acted on as one bulk action: preview, confirmation, progress, result."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec
import typer
from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.output.live_display import LiveDisplay, render_progress_bar
from peerd.cli.tasks.show import OMITTED_COLUMNS, node_names, task_json, tasks_table
from peerd.domain.bulk import BulkAction, BulkPreview, BulkState, TaskAction
from peerd.operate.task_filter import TaskFilter
from peerd.store.bulk_chunks import PAUSE_RATIO, ChunkSize

POLL: Final = 0.5
"""Seconds between two looks at a bulk action that a manager carries out."""
MANAGER_CHECK: Final = 5.0
"""Seconds between two looks at whether there is one."""
BAR: Final = 30


class BulkCommand:
    """An action of the command line on what a filter finds.

    Args:
        context: of the command.
        action: what is done to each task.
        tasks: the filter.
        verb: of a question, such as ``retry``.
        past: of a result, such as ``retried``.
    """

    def __init__(self, context: CommandContext, action: TaskAction, tasks: TaskFilter, verb: str, past: str) -> None:
        self._context = context
        self._bulk = context.client.bulk
        self._action = action
        self._tasks = tasks
        self._verb = verb
        self._past = past

    def run(self, *, most: int | None, all_tasks: bool, yes: bool, dry_run: bool, no_wait: bool) -> None:
        """Preview it, ask, begin it, and follow it to its end."""
        preview = self._bulk.preview(self._action, self._tasks, all_tasks=all_tasks)
        count = preview.matched if most is None else min(preview.matched, most)
        at_least = preview.at_least and count == preview.matched and count != most
        if dry_run:
            self._show(preview, count, at_least=at_least)
            return
        if not count and not preview.at_least:
            self._context.print_result({"verb": self._past, "matched": 0, "done": 0}, "no such task")
            return
        if not yes:
            confirm(self._context, f"{self._verb} {describe_count(count, at_least=at_least)}?")
        bulk = self._bulk.create(self._action, self._tasks, digest=preview.digest, most=most, all_tasks=all_tasks)
        if no_wait:
            self._leave(bulk)
            return
        finish(self._context, bulk, self._past)

    def _show(self, preview: BulkPreview, count: int, *, at_least: bool) -> None:
        """What would be acted on."""
        names = node_names(self._context.client)
        examples = [
            {name: value for name, value in task_json(task, names).items() if name not in OMITTED_COLUMNS}
            for task in preview.examples[:count]
        ]
        answer = {"verb": self._verb, "matched": count, "at_least": at_least, "examples": examples}
        sentence = f"would {self._verb} {describe_count(count, at_least=at_least)}"
        table = [lambda: tasks_table(preview.examples[:count], names, self._context.client.now())] if examples else []
        more = [f"… and {count - len(examples):,}{'+' if at_least else ''} more"] if count > len(examples) else []
        self._context.print_result(answer | {"digest": preview.digest}, sentence, *table, *more)

    def _leave(self, bulk: BulkAction) -> None:
        lines = [f"bulk action {bulk.id} begins; follow it with: peerd bulk watch {bulk.id}"]
        if not self._bulk.has_manager():
            lines.append("no node runs that carries it out: it waits for one")
        self._context.print_result(bulk_json(bulk), *lines)


def finish(context: CommandContext, bulk: BulkAction, past: str) -> None:
    """Follow a bulk action to its end, and print the result; exit with status 1 if not all went well."""
    try:
        ended = follow(context, bulk)
    except KeyboardInterrupt:
        if not context.as_json:
            left = f"bulk action {bulk.id} is left as it is; peerd bulk watch, pause or cancel {bulk.id}"
            context.err.print(Text(left, "yellow"), soft_wrap=True)
        raise
    lines = [Text(sanitize(f"task {one.task}: {one.error}"), "red") for one in ended.errors]
    if ended.failed > len(ended.errors):
        lines.append(Text(f"… and {ended.failed - len(ended.errors):,} more were refused", "red"))
    if ended.error is not None:
        lines.append(Text(sanitize(f"bulk action {ended.id} failed: {ended.error}"), "red"))
    context.print_result(bulk_json(ended), *lines, _summary(ended, past))
    if ended.failed or ended.state is not BulkState.DONE:
        raise typer.Exit(1)


def _summary(bulk: BulkAction, past: str) -> Text:
    summary = Text(f"{past} {pluralize(bulk.done, 'task')}", "green" if bulk.done else "")
    if bulk.skipped:
        since = "has changed since it was found" if bulk.skipped == 1 else "have changed since they were found"
        summary.append(f"; {bulk.skipped:,} {since}", "")
    if bulk.state is BulkState.CANCELED:
        summary.append("; it was canceled", "yellow")
    return summary


def follow(context: CommandContext, bulk: BulkAction) -> BulkAction:
    """Show the progress of a bulk action until it has ended; carry it out here where no node runs that would."""
    size, checked_at, has_manager = ChunkSize(), 0.0, False
    with LiveDisplay(context.out, silent=context.as_json or not context.out.is_terminal) as display:
        while not bulk.has_ended:
            if time.monotonic() - checked_at >= MANAGER_CHECK:
                checked_at, has_manager = time.monotonic(), context.client.bulk.has_manager()
            display.update(render_bulk(bulk))
            began, before = time.monotonic(), bulk.done + bulk.examined
            if has_manager or bulk.state is BulkState.PAUSED:
                time.sleep(POLL)
                bulk = context.client.bulk.get(bulk.id)
                continue
            bulk = context.client.bulk.carry_out(bulk.id, size.tasks)
            seconds = time.monotonic() - began
            if bulk.done + bulk.examined > before:
                size.record(seconds)
            time.sleep(max(PAUSE_RATIO * seconds, 0.005))
    return bulk


def render_bulk(bulk: BulkAction) -> Text:
    """A bar, and how many are done of how many."""
    count = f"  {bulk.done:,} of {bulk.matched:,}{'+' if bulk.at_least else ''}"
    line = Text.assemble(f"  {bulk.action_name}  ", render_progress_bar(bulk.progress, BAR), count)
    for number, word in ((bulk.skipped, "changed"), (bulk.failed, "refused"), (bulk.postponed, "locked")):
        if number:
            line.append(f", {number:,} {word}")
    if bulk.state is not BulkState.RUNNING:
        line.append(f"  {bulk.state}", "yellow")
    return line


def bulk_json(bulk: BulkAction) -> dict[str, Any]:
    """A bulk action with its progress."""
    return msgspec.structs.asdict(bulk) | {"progress": bulk.progress}


def describe_count(count: int, *, at_least: bool) -> str:
    """How many tasks.

    >>> describe_count(1, at_least=False), describe_count(10_000, at_least=True)
    ('1 task', '10,000+ tasks')
    """
    return f"{count:,}+ tasks" if at_least else pluralize(count, "task")


def confirm(context: CommandContext, question: str) -> None:
    """Ask whether it shall be done, and end the command if not."""
    if context.as_json:
        raise CommandError(f"the action on what the filter finds needs a confirmation ({question[:-1]})", "give --yes")
    typer.confirm(question, abort=True, err=True)
