"""The state of the demo's tasks at one moment, as bars or lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.text import Text

from peerd.cli.output.formatting import STATUS_STYLES, first_line
from peerd.cli.output.live_display import render_progress_bar
from peerd.cli.output.tables import AlignedTable, right, wide
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.store.processes import ProcessRecord

BAR_WIDTH = 16


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """A worker process that the demo killed, and the task that it was running."""

    task_id: int
    progress: float
    process: ProcessRecord
    node: str

    @property
    def description(self) -> str:
        """What happened."""
        worker = f"worker {self.process.slot} of {self.node}"
        return f"kill -9 {self.process.pid}: {worker}, in the middle of task {self.task_id} ({self.progress:.0%})"


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """The tasks, the processes of all nodes and the names of the nodes, by their ids."""

    tasks: Sequence[Task]
    processes: Mapping[int, ProcessRecord]
    nodes: Mapping[int, str]

    @classmethod
    def read(cls, client: Client, ids: Sequence[int]) -> Self:
        """Read them from the database."""
        tasks = [task for task in (client.tasks.find(task_id) for task_id in ids) if task is not None]
        processes = {process.id: process for process in client.nodes.processes(ended=True)}
        return cls(tasks, processes, {node.id: node.name for node in client.nodes.list()})

    @property
    def ended(self) -> bool:
        """Whether all tasks have ended."""
        return all(task.finished for task in self.tasks)

    def node_name(self, node_id: int | None) -> str:
        """The name of a node."""
        return self.nodes.get(node_id or 0, "–")

    def holder_of(self, task: Task) -> str:
        """The node and the worker that claimed a task last."""
        process = self.processes.get(task.process_id or 0)
        return "–" if process is None else f"{self.node_name(process.node_id)} {process.slot}"


def render_bars(snapshot: DemoSnapshot, kill: WorkerKill | None) -> AlignedTable:
    """A row for each task: id, status, bar, worker, and a note."""
    rows = [
        (
            Text(str(task.id), style="bold"),
            Text(task.status, style=STATUS_STYLES[task.status]),
            render_progress_bar(task.progress or 0.0, BAR_WIDTH),
            snapshot.holder_of(task) if task.status is Status.WORKING else "",
            _note(task, kill),
        )
        for task in snapshot.tasks
    ]
    return AlignedTable((right(""), "", "", "", wide("")), rows)


def render_line(task: Task, snapshot: DemoSnapshot) -> Text:
    """A task on a line."""
    note = first_line(task.error if task.status is Status.FAILURE else task.progress_note)
    progress = f"{task.progress or 0.0:4.0%}"
    return Text(f"task {task.id}  {task.status:<9} {progress}  {snapshot.holder_of(task)}  {note}")


def _note(task: Task, kill: WorkerKill | None) -> Text:
    if task.attempts and not task.finished:
        return Text(f"attempt {task.attempts + 1}: {first_line(task.error)}", style="magenta")
    if kill is not None and kill.task_id == task.id and task.status is Status.WORKING:
        return Text("its worker was just killed", style="bold red")
    if task.status is Status.DEAD:
        return Text(first_line(task.error), style="red")
    return Text("" if task.status is Status.DONE else first_line(task.progress_note), style="bright_black")
