"""``peerd tasks watch``: a bar for each task that runs, a line for each that has ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, assert_never

import msgspec
import typer
from rich.console import Console, Group
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.following import parse_pause
from peerd.cli.output import (
    STATUS_STYLES,
    AlignedTable,
    Column,
    Fields,
    LiveDisplay,
    first_line,
    format_age,
    render_progress_bar,
    right,
    wide,
)
from peerd.cli.tasks.show import (
    NameOption,
    QueueOption,
    describe_node,
    describe_since,
    format_run_time,
    node_names,
    task_json,
    task_title,
)
from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import Client

NEWEST_LIMIT = 100
"""The newest tasks, which every poll reads; by primary key, so that it costs the same in a large table."""
WIDE_TERMINAL = 100
"""The width from which bars and titles are longer."""
UNFINISHED = (Status.PENDING, Status.WORKING, Status.FAILURE, Status.SCHEDULED, Status.WAITING)


def watch(
    context: CommandContext,
    ids: Annotated[list[int] | None, Argument(metavar="ID", help="Only these tasks.")] = None,
    queue: QueueOption = None,
    name: NameOption = None,
    until_done: Annotated[
        bool, Option("--until-done", help="Exit when all have ended; status 1 if one is dead.")
    ] = False,
    every: Annotated[str, Option(metavar="DURATION", help="The polling interval.")] = "500ms",
) -> None:
    """Watch tasks run: a bar for each, and a line for each that has ended.

    If stdout is not a terminal: a line for each change. With --json: an object for each change. Ctrl-C ends it.
    """
    pause = parse_pause(every)
    missing = [task_id for task_id in sorted(set(ids or ())) if context.client.tasks.find(task_id) is None]
    for task_id in missing:
        context.print_error(CommandError(str(TaskNotFound(task_id)), kind=TaskNotFound.__name__))
    found = set(ids or ()).difference(missing)
    if missing and not found:
        raise typer.Exit(1)
    watcher = TaskWatcher(context.client, found, queue, name)
    with LiveDisplay(context.out, silent=context.as_json) as display:
        for changes in watcher.poll():
            if context.as_json:
                for change in changes:
                    task = task_json(change.task, watcher.names)
                    context.print_json_line({"at": watcher.now, "change": change.kind, "task": task})
            show_changes(display, context.out, changes, watcher)
            if until_done and watcher.all_ended():
                break
            time.sleep(pause)
    if until_done and (missing or watcher.state.dead):
        raise typer.Exit(1)


class TaskWatcher:
    """The tasks that are watched, poll by poll."""

    def __init__(self, client: Client, ids: Iterable[int], queue: str | None, name: str | None) -> None:
        self.client = client
        self.ids = set(ids)
        self.queue = queue
        self.name = name
        self.state = WatchState(ids)
        self.names = node_names(client)
        self.started_at = self.now = client.now()

    def poll(self) -> Iterator[list[TaskChange]]:
        """The changes since the last poll."""
        while True:
            self.now = self.client.now()
            working = [] if self.ids else self._list(Status.WORKING, limit=200)
            running = {task.id for task in working}
            others = {task_id: self.client.tasks.find(task_id) for task_id in self.state.tracked - running}
            changes = apply_poll(self.state, working, others, self._ended())
            if any(change.task.worker_node_id not in self.names for change in changes):
                self.names = node_names(self.client)
            yield changes

    def all_ended(self) -> bool:
        """Whether all watched tasks have ended."""
        if self.ids:
            return not self.state.unfinished
        return not any(self._list(status, limit=1) for status in UNFINISHED)

    def _ended(self) -> list[Task]:
        """New tasks that have ended since the start: they may have run between two polls."""
        if self.ids:
            return []
        return [
            task
            for task in self.client.tasks.list(limit=NEWEST_LIMIT, bodies=False)
            if task.finished_at is not None
            and task.finished
            and task.finished_at >= self.started_at
            and self.queue in (None, task.queue)
            and self.name in (None, task.name)
        ]

    def _list(self, status: Status, limit: int) -> list[Task]:
        return self.client.tasks.list(queue=self.queue, name=self.name, status=status, limit=limit, bodies=False)


def show_changes(display: LiveDisplay, console: Console, changes: Sequence[TaskChange], watcher: TaskWatcher) -> None:
    """Print a line for each change; in a terminal only for ends, and draw a bar for each task that runs."""
    for change in changes:
        line = _render_change(change, watcher.names, watcher.now)
        if not display.is_terminal:
            display.print(Text.assemble(f"{watcher.now:%H:%M:%S}  ", line))
        elif change.kind not in (ChangeKind.STARTED, ChangeKind.PROGRESSED):
            display.print(line)
    if display.is_terminal:
        running = sorted(watcher.state.running.values(), key=lambda task: task.id)
        display.update(render_bars(running, watcher.names, watcher.now, console))


def render_bars(running: Sequence[Task], names: Mapping[int, str], now: datetime, console: Console) -> Group:
    """A row for each task that runs, as many as the terminal has room for."""
    fitting = running[: max(console.height - 4, 1)]
    is_wide = console.width >= WIDE_TERMINAL
    fields: Fields[Task] = (
        (right(""), lambda task: Text(str(task.id), "bold")),
        (Column(max_width=28 if is_wide else 16), task_title),
        ("", lambda task: render_progress_bar(task.progress, 30 if is_wide else 16)),
        (Column(max_width=14), lambda task: describe_node(task, names)),
        (wide(""), lambda task: Text(_describe_progress(task, now), "bright_black")),
    )
    left = len(running) - len(fitting)
    rest = [Text(f"… and {left} more", "bright_black")] if left else []
    waiting = [] if running else [Text("no task is running (Ctrl-C ends the watch)", "bright_black")]
    return Group(AlignedTable(fields, fitting), *rest, *waiting)


def _describe_progress(task: Task, now: datetime) -> str:
    attempt = f"attempt {task.attempts + 1}: " if task.attempts else ""
    return f"{attempt}{first_line(task.progress_note) or describe_since(task, now)}"


def _render_change(change: TaskChange, names: Mapping[int, str], now: datetime) -> Text:
    task = change.task
    head = Text.assemble((f"{task.id:>4}", "bold"), "  ", task_title(task), "  ")
    node = describe_node(task, names)
    match change.kind:
        case ChangeKind.GONE:
            return head.append("was deleted or purged", "bright_black")
        case ChangeKind.STARTED:
            number = f", attempt {task.attempts + 1}" if task.attempts else ""
            return head.append(f"started on {node}{number}", STATUS_STYLES[Status.WORKING])
        case ChangeKind.PROGRESSED:
            percent = "" if task.progress is None else f"{task.progress:.0%}"
            return head.append(f"{percent} {first_line(task.progress_note)}".strip())
        case ChangeKind.RETURNED:
            is_later = task.start_at is not None and task.start_at > now
            again = f", again {format_age(task.start_at, now)}" if is_later else ""
            state = "pending again" if task.status is Status.PENDING else f"{task.status}{again}"
        case ChangeKind.ENDED:
            run_time = format_run_time(task)
            state = f"{task.status}{f' in {run_time}' if run_time else ''}{f' on {node}' if node else ''}"
        case _:
            assert_never(change.kind)
    head.append(state, STATUS_STYLES[task.status])
    return head.append(f"  {first_line(task.error)}" if task.error and task.status is not Status.DONE else "")


# ---------------------------------------------------------------- what has changed between two polls


class ChangeKind(StrEnum):
    """What happened to a task between two polls."""

    STARTED = "started"
    PROGRESSED = "progressed"
    ENDED = "ended"
    """The task is done, dead or canceled."""
    RETURNED = "returned"
    """The task stopped running and has not ended: failure, scheduled or pending."""
    GONE = "gone"
    """The row of the task was deleted or purged."""


class TaskChange(msgspec.Struct, frozen=True):
    """A change; the task as it is now, or the last known one if its row is gone."""

    kind: ChangeKind
    task: Task


class WatchState:
    """The tasks that are tracked: those that run, and named ones until they have ended.

    Args:
        ids: named tasks; without any, all tasks that run are tracked.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.unfinished = set(ids)
        """Named tasks that have not ended."""
        self.dead: set[int] = set()
        """Tasks that have ended dead."""
        self.running: dict[int, Task] = {}
        """Tasks that run, as of the last poll."""
        self._reported_ends: set[tuple[int, int]] = set()
        """Tasks and their leases whose end was reported."""

    @property
    def tracked(self) -> set[int]:
        """Tasks that every poll must read."""
        return self.unfinished | set(self.running)

    def observe(self, task_id: int, task: Task | None) -> list[TaskChange]:
        """Record the current state of a task; None if its row is gone."""
        was_tracked = task_id in self.tracked
        before = self.running.pop(task_id, None)
        if task is not None and task.status is Status.WORKING:
            self.running[task_id] = task
            return _progress_changes(before, task)
        if task is None or task.finished:
            self.unfinished.discard(task_id)
        if task is not None and task.finished:
            return self.record_end(task) if was_tracked else []
        if before is None:
            return []
        return [TaskChange(ChangeKind.GONE, before) if task is None else TaskChange(ChangeKind.RETURNED, task)]

    def record_end(self, task: Task) -> list[TaskChange]:
        """Record that a task has ended; each end is reported once."""
        if (task.id, task.lease) in self._reported_ends:
            return []
        self._reported_ends.add((task.id, task.lease))
        if task.status is Status.DEAD:
            self.dead.add(task.id)
        return [TaskChange(ChangeKind.ENDED, task)]


def apply_poll(
    state: WatchState, working: Iterable[Task], others: Mapping[int, Task | None], ended: Iterable[Task] = ()
) -> list[TaskChange]:
    """Record the tasks that run, the tracked ones that do not, and those that started and ended between two polls."""
    changes: list[TaskChange] = []
    for task in sorted(working, key=lambda task: task.id):
        changes += state.observe(task.id, task)
    for task_id in sorted(others):
        changes += state.observe(task_id, others[task_id])
    for task in sorted(ended, key=lambda task: task.id):
        changes += state.record_end(task)
    return changes


def _progress_changes(before: Task | None, task: Task) -> list[TaskChange]:
    if before is None or before.lease != task.lease:
        return [TaskChange(ChangeKind.STARTED, task)]
    if (before.progress, before.progress_note) != (task.progress, task.progress_note):
        return [TaskChange(ChangeKind.PROGRESSED, task)]
    return []
