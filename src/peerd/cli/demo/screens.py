"""How the demo looks: bars in a terminal, lines elsewhere, nothing before the end for programs."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from peerd.cli.context import Desk
from peerd.cli.demo.snapshot import Murder, Scene
from peerd.cli.output.formatting import STYLES, first_line
from peerd.cli.output.resizing import Resizing
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task


class Screen(Protocol):
    """Where the story is shown."""

    def say(self, text: str, *, loud: bool = False) -> None:
        """A sentence that stays."""

    def show(self, scene: Scene, murder: Murder | None) -> None:
        """What runs now."""

    def end(self) -> None:
        """Nothing runs any more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


def screen_for(desk: Desk) -> Screen:
    """The screen that fits whoever reads."""
    if desk.as_json:
        return Silence()
    return Bars(desk.out) if desk.out.is_terminal else Lines(desk.out)


class Silence:
    """For programs: they get the ending."""

    def say(self, text: str, *, loud: bool = False) -> None:
        """Nothing."""

    def show(self, scene: Scene, murder: Murder | None) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class Lines:
    """A line for each tenth that a task has come further, and for each change of its status."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._said: dict[int, tuple[Status, int, str]] = {}

    def say(self, text: str, *, loud: bool = False) -> None:
        """A sentence."""
        self._out.print(Text(f"*** {text}" if loud else text), soft_wrap=True)

    def show(self, scene: Scene, murder: Murder | None) -> None:
        """What has changed."""
        for task in scene.tasks:
            now = (task.status, int((task.progress or 0.0) * 5), scene.place(task))
            if self._said.get(task.id) != now:
                self._said[task.id] = now
                note = first_line(task.error) if task.status is Status.FAILURE else first_line(task.progress_note)
                line = f"task {task.id}  {task.status:<9} {task.progress or 0.0:4.0%}  {scene.place(task)}  {note}"
                self._out.print(Text(line), soft_wrap=True)

    def end(self) -> None:
        """Nothing more to say."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clear."""


class Bars:
    """A bar for each task, live."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._live = Live(console=out, refresh_per_second=8, transient=False)
        self._resizing = Resizing(out)

    def say(self, text: str, *, loud: bool = False) -> None:
        """A sentence above the bars."""
        self._live.console.print(Text(f"✗ {text}" if loud else f"• {text}", style="bold red" if loud else ""))

    def show(self, scene: Scene, murder: Murder | None) -> None:
        """The bars as they are now."""
        self._resizing.clear()
        self._live.update(Group(Text(), bars(scene, murder)))

    def end(self) -> None:
        """Leave the last picture."""
        self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def bars(scene: Scene, murder: Murder | None) -> Table:
    """A row for each task: its number, status, bar, who has it, what it says."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=8)
    table.add_column(width=24)
    table.add_column(justify="right", no_wrap=True, min_width=4)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for task in scene.tasks:
        table.add_row(
            Text(str(task.id), style="bold"),
            Text(task.status, style=STYLES[task.status]),
            ProgressBar(total=1.0, completed=task.progress or 0.0, width=24),
            Text(f"{task.progress or 0.0:.0%}"),
            Text(scene.place(task) if task.status is Status.WORKING else ""),
            note_of(task, murder),
        )
    return table


def note_of(task: Task, murder: Murder | None) -> Text:
    """What there is to say of a task."""
    if task.attempts and not task.finished:
        return Text(f"attempt {task.attempts + 1}: {first_line(task.error)}", style="magenta")
    if murder is not None and murder.task_id == task.id and task.status is Status.WORKING:
        return Text("its worker was just killed", style="bold red")
    if task.status is Status.DONE:
        return Text()
    note = task.error if task.status is Status.DEAD else task.progress_note
    return Text(first_line(note), style="red" if task.status is Status.DEAD else "bright_black")
