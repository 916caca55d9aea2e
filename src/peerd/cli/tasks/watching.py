"""``peerd tasks watch``: a bar for each task that runs, a line for each that has ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Annotated, Any, Protocol, Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError, parse_duration_option
from peerd.cli.output.formatting import STATUS_STYLES, first_line, format_age, format_elapsed, sanitize
from peerd.cli.output.resizing import ResizeDetector
from peerd.cli.output.tables import Column, table
from peerd.cli.tasks.listing import describe_node, describe_since, task_title
from peerd.cli.tasks.options import NameOption, QueueOption
from peerd.cli.tasks.show import node_names, task_json
from peerd.cli.tasks.watch_state import ChangeKind, TaskChange, WatchState, apply_poll
from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import Client

NEWEST_LIMIT = 100
"""The newest tasks, which are read at each look; by primary key, so that it costs the same in a large table."""
REDRAWN_LINES = 10
"""Lines of what has ended that are written again when the terminal was cleared."""
UNFINISHED = (Status.PENDING, Status.WORKING, Status.FAILURE, Status.SCHEDULED, Status.WAITING)


def watch(
    context: CommandContext,
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID", help="Only these tasks.", show_default=False)] = None,
    queue: QueueOption = None,
    name: NameOption = None,
    until_done: Annotated[
        bool,
        typer.Option(
            "--until-done", help="End when none of them is left; status 1 if one is dead.", show_default=False
        ),
    ] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="Between two looks.")] = "500ms",
) -> None:
    """Watch tasks run: a bar for each, and a line for each that has ended.

    Where stdout is no terminal, a line for each change. With --json, an object for each change. Ctrl-C ends it.
    """
    pause = max(parse_duration_option("--every", every), 0.05)
    watcher = TaskWatcher(context.client, ids or [], queue, name)
    missing = watcher.drop_missing()
    for error in missing:
        context.print_error(CommandError(str(error), kind=type(error).__name__))
    if missing and not watcher.ids:
        raise typer.Exit(1)
    try:
        with select_watch_screen(context) as screen:
            for changes in watcher.poll():
                screen.show(changes, watcher)
                if until_done and watcher.all_ended():
                    break
                time.sleep(pause)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if until_done and (missing or watcher.state.dead):
        raise typer.Exit(1)


class TaskWatcher:
    """The tasks that are watched, look by look."""

    def __init__(self, client: Client, ids: list[int], queue: str | None, name: str | None) -> None:
        self.client = client
        self.ids = set(ids)
        self.queue = queue
        self.name = name
        self.state = WatchState(ids)
        self.names = node_names(client)
        self.started_at = self.now = client.now()

    def drop_missing(self) -> list[TaskNotFound]:
        """Watch those tasks no more that are not there."""
        missing = [task_id for task_id in sorted(self.ids) if self.client.tasks.find(task_id) is None]
        self.ids -= set(missing)
        self.state.unfinished -= set(missing)
        return [TaskNotFound(task_id) for task_id in missing]

    def poll(self) -> Iterator[list[TaskChange]]:
        """What has changed, at each look."""
        while True:
            self.now = self.client.now()
            working = self._working()
            seen = {task.id for task in working}
            others = {task_id: self.client.tasks.find(task_id) for task_id in self.state.tracked - seen}
            changes = apply_poll(self.state, working, others, self._ended())
            if any(change.task.worker_node_id not in self.names for change in changes):
                self.names = node_names(self.client)
            yield changes

    def all_ended(self) -> bool:
        """Whether all that is watched has ended."""
        if self.ids:
            return not self.state.unfinished
        return not any(
            self.client.tasks.list(queue=self.queue, name=self.name, status=status, limit=1, bodies=False)
            for status in UNFINISHED
        )

    def _ended(self) -> list[Task]:
        """New tasks that have ended since the watch began: they may have started and ended between two looks."""
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

    def _working(self) -> list[Task]:
        if self.ids:
            return []
        return self.client.tasks.list(queue=self.queue, name=self.name, status=Status.WORKING, limit=200, bodies=False)


class WatchScreen(Protocol):
    """Where changes are shown."""

    def show(self, changes: list[TaskChange], watcher: TaskWatcher) -> None:
        """Show what has changed, and what runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


def select_watch_screen(context: CommandContext) -> WatchScreen:
    """Lines of JSON, plain lines, or bars."""
    if context.as_json:
        return WatchJsonLines(context)
    return WatchBars(context.out) if context.out.is_terminal else WatchLines(context.out)


class _PlainScreen(AbstractContextManager["Any"]):
    """A screen that needs no closing."""

    def __exit__(self, *_: object) -> None:
        pass


class WatchJsonLines(_PlainScreen):
    """An object for each change."""

    def __init__(self, context: CommandContext) -> None:
        self._desk = context

    def show(self, changes: list[TaskChange], watcher: TaskWatcher) -> None:
        """Write them."""
        for change in changes:
            task = task_json(change.task, watcher.names)
            self._desk.line({"at": watcher.now, "change": change.kind, "task": task})


class WatchLines(_PlainScreen):
    """A plain line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, changes: list[TaskChange], watcher: TaskWatcher) -> None:
        """Write them."""
        for change in changes:
            line = Text.assemble(f"{watcher.now:%H:%M:%S}  ", render_change(change, watcher.names, watcher.now))
            self._console.print(line, soft_wrap=True)


class WatchBars:
    """Bars for what runs, below lines for what has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._resize_detector = ResizeDetector(console)
        self._ended_lines: deque[Text] = deque(maxlen=REDRAWN_LINES)

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._live.stop()

    def show(self, changes: list[TaskChange], watcher: TaskWatcher) -> None:
        """Draw."""
        lines = [
            render_change(change, watcher.names, watcher.now)
            for change in changes
            if change.kind not in (ChangeKind.STARTED, ChangeKind.PROGRESSED)
        ]
        again = list(self._ended_lines) if self._resize_detector.clear() else []
        for line in [*again, *lines]:
            self._console.print(line, no_wrap=True, overflow="ellipsis")
        self._ended_lines += lines
        running = sorted(watcher.state.running.values(), key=lambda task: task.id)
        self._live.update(render_watch_bars(running, watcher, self._console), refresh=True)


def render_watch_bars(running: list[Task], watcher: TaskWatcher, console: Console) -> Group:
    """A row for each task that runs, as many as fit."""
    fitting = running[: max(console.height - 4, 1)]
    wide = console.width >= 100
    columns = (
        Column(right=True),
        Column(max_width=28 if wide else 16),
        Column(),
        Column(max_width=14),
        Column(wide=True),
    )
    rows = [
        [
            Text(str(task.id), "bold"),
            Text(task_title(task)),
            _render_progress_bar(task, 30 if wide else 16),
            Text(describe_node(task, watcher.names)),
            Text(
                f"{_attempt_prefix(task)}{first_line(task.progress_note) or describe_since(task, watcher.now)}",
                "bright_black",
            ),
        ]
        for task in fitting
    ]
    left = len(running) - len(fitting)
    rest = [Text(f"… and {left} more", "bright_black")] if left else []
    waiting = [] if running else [Text("nothing runs; waiting (Ctrl-C ends it)", "bright_black")]
    return Group(table(columns, rows), *rest, *waiting)


def _render_progress_bar(task: Task, width: int) -> Text:
    """A bar and its percentage; a task that reports no progress has none."""
    if task.progress is None:
        return Text("·" * width + "    –", "bright_black")
    filled = round(min(max(task.progress, 0.0), 1.0) * width)
    return Text.assemble(
        ("━" * filled, "green"), ("━" * (width - filled), "bright_black"), (f" {task.progress:4.0%}", "yellow")
    )


def _attempt_prefix(task: Task) -> str:
    return f"attempt {task.attempts + 1}: " if task.attempts else ""


def render_change(change: TaskChange, names: Mapping[int, str], now: datetime) -> Text:
    """A change in a line."""
    task = change.task
    head = Text.assemble((f"{task.id:>4}", "bold"), "  ", task_title(task), "  ")
    match change.kind:
        case ChangeKind.GONE:
            return head.append("is gone: deleted or purged", "bright_black")
        case ChangeKind.STARTED:
            number = f", attempt {task.attempts + 1}" if task.attempts else ""
            return head.append(f"started on {describe_node(task, names)}{number}", STATUS_STYLES[Status.WORKING])
        case ChangeKind.PROGRESSED:
            percent = "" if task.progress is None else f"{task.progress:.0%}"
            return head.append(f"{percent} {first_line(task.progress_note)}".strip())
        case ChangeKind.RETURNED:
            again = (
                f", again {format_age(task.start_at, now)}" if task.start_at is not None and task.start_at > now else ""
            )
            now_is = "pending again" if task.status is Status.PENDING else f"{task.status}{again}"
            head.append(now_is, STATUS_STYLES[task.status])
            return head.append(f"  {first_line(task.error)}" if task.error else "")
        case ChangeKind.ENDED:
            return _ended(head, task, names)


def _ended(head: Text, task: Task, names: Mapping[int, str]) -> Text:
    took = ""
    if task.worker_started_at is not None and task.finished_at is not None:
        took = f" in {format_elapsed((task.finished_at - task.worker_started_at).total_seconds())}"
    node = f" on {describe_node(task, names)}" if describe_node(task, names) else ""
    head.append(f"{task.status}{took}{sanitize(node)}", STATUS_STYLES[task.status])
    return head.append(f"  {first_line(task.error)}" if task.error and task.status is not Status.DONE else "")
