"""How the demo looks: bars in a terminal, lines elsewhere, nothing before the end for programs."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.demo.snapshot import DemoSnapshot, WorkerKill
from peerd.cli.output.formatting import STATUS_STYLES, first_line
from peerd.cli.output.resizing import ResizeDetector
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task


class DemoScreen(Protocol):
    """Where the story is shown."""

    def report(self, text: str, *, emphasized: bool = False) -> None:
        """A sentence that stays."""

    def show(self, snapshot: DemoSnapshot, kill: WorkerKill | None) -> None:
        """What runs now."""

    def end(self) -> None:
        """Nothing runs any more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


def select_demo_screen(context: CommandContext) -> DemoScreen:
    """The screen that fits whoever reads."""
    if context.as_json:
        return SilentScreen()
    return DemoBars(context.out) if context.out.is_terminal else DemoLines(context.out)


class SilentScreen:
    """For programs: they get the ending."""

    def report(self, text: str, *, emphasized: bool = False) -> None:
        """Nothing."""

    def show(self, snapshot: DemoSnapshot, kill: WorkerKill | None) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class DemoLines:
    """A line for each tenth that a task has come further, and for each change of its status."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._printed: dict[int, tuple[Status, int, str]] = {}

    def report(self, text: str, *, emphasized: bool = False) -> None:
        """A sentence."""
        self._out.print(Text(f"*** {text}" if emphasized else text), soft_wrap=True)

    def show(self, snapshot: DemoSnapshot, kill: WorkerKill | None) -> None:
        """What has changed."""
        for task in snapshot.tasks:
            now = (task.status, int((task.progress or 0.0) * 5), snapshot.holder_of(task))
            if self._printed.get(task.id) != now:
                self._printed[task.id] = now
                note = first_line(task.error) if task.status is Status.FAILURE else first_line(task.progress_note)
                line = (
                    f"task {task.id}  {task.status:<9} {task.progress or 0.0:4.0%}  {snapshot.holder_of(task)}  {note}"
                )
                self._out.print(Text(line), soft_wrap=True)

    def end(self) -> None:
        """Nothing more to say."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clear."""


class DemoBars:
    """A bar for each task, live."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._live = Live(console=out, refresh_per_second=8, transient=False)
        self._resize_detector = ResizeDetector(out)

    def report(self, text: str, *, emphasized: bool = False) -> None:
        """A sentence above the bars."""
        self._live.console.print(
            Text(f"✗ {text}" if emphasized else f"• {text}", style="bold red" if emphasized else "")
        )

    def show(self, snapshot: DemoSnapshot, kill: WorkerKill | None) -> None:
        """The bars as they are now."""
        self._resize_detector.clear()
        self._live.update(Group(Text(), render_demo_bars(snapshot, kill)))

    def end(self) -> None:
        """Leave the last picture."""
        self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def render_demo_bars(snapshot: DemoSnapshot, kill: WorkerKill | None) -> Table:
    """A row for each task: its number, status, bar, who has it, what it says."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=8)
    table.add_column(width=24)
    table.add_column(justify="right", no_wrap=True, min_width=4)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for task in snapshot.tasks:
        table.add_row(
            Text(str(task.id), style="bold"),
            Text(task.status, style=STATUS_STYLES[task.status]),
            ProgressBar(total=1.0, completed=task.progress or 0.0, width=24),
            Text(f"{task.progress or 0.0:.0%}"),
            Text(snapshot.holder_of(task) if task.status is Status.WORKING else ""),
            task_note(task, kill),
        )
    return table


def task_note(task: Task, kill: WorkerKill | None) -> Text:
    """What there is to say of a task."""
    if task.attempts and not task.finished:
        return Text(f"attempt {task.attempts + 1}: {first_line(task.error)}", style="magenta")
    if kill is not None and kill.task_id == task.id and task.status is Status.WORKING:
        return Text("its worker was just killed", style="bold red")
    if task.status is Status.DONE:
        return Text()
    note = task.error if task.status is Status.DEAD else task.progress_note
    return Text(first_line(note), style="red" if task.status is Status.DEAD else "bright_black")
