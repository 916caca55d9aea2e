"""The state of the demo's tasks at one moment, as bars or lines, and the summary at the end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import RenderableType
from rich.text import Text

from peerd.cli.demo.dashboard import EXTRA, DashboardLogin, missing_packages, open_command
from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.output import (
    STATUS_STYLES,
    AlignedTable,
    Fields,
    first_line,
    format_elapsed,
    render_progress_bar,
    right,
    wide,
)
from peerd.cli.tasks.show import format_run_time
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.domain.units import format_size
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
    fields: Fields[Task] = (
        (right(""), lambda task: Text(str(task.id), style="bold")),
        ("", lambda task: Text(task.status, style=STATUS_STYLES[task.status])),
        ("", lambda task: render_progress_bar(task.progress or 0.0, BAR_WIDTH)),
        ("", lambda task: snapshot.holder_of(task) if task.status is Status.WORKING else ""),
        (wide(""), lambda task: _note(task, kill)),
    )
    return AlignedTable(fields, snapshot.tasks)


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


# ---------------------------------------------------------------- the summary


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """The outcome of the demo.

    Attributes:
        sandbox: the folder and its nodes.
        snapshot: the tasks at the end.
        attempts: of each task, those that failed.
        kill: the worker that was killed.
        seconds: how long the demo took.
        dashboard: where it is, if the nodes go on with it.
    """

    sandbox: DemoSandbox
    snapshot: DemoSnapshot
    attempts: Mapping[int, Sequence[Attempt]]
    kill: WorkerKill | None
    seconds: float
    dashboard: DashboardLogin | None

    @property
    def succeeded(self) -> bool:
        """Whether all tasks are done, and another process finished the killed worker's task."""
        return all(task.status is Status.DONE for task in self.snapshot.tasks) and self._recovered

    @property
    def _recovered(self) -> bool:
        if self.kill is None:
            return False
        task = self._killed_task
        return (
            task is not None
            and task.status is Status.DONE
            and task.process_id != self.kill.process.id
            and any(attempt.process_id == self.kill.process.id for attempt in self.attempts[task.id])
        )

    @property
    def _killed_task(self) -> Task | None:
        return next((task for task in self.snapshot.tasks if self.kill and task.id == self.kill.task_id), None)

    def render(self) -> list[RenderableType]:
        """The table, and the conclusion."""
        table = AlignedTable(self._fields(), self.snapshot.tasks)
        until = ", until the demo ends" if self.sandbox.is_removed else ""
        files = Text(f"The files are in {self.sandbox.media}; the nodes' logs are beside them{until}.")
        done = sum(task.status is Status.DONE for task in self.snapshot.tasks)
        count = f"{done} of {len(self.snapshot.tasks)} transcodes done and verified"
        total = Text(f"{count} in {format_elapsed(self.seconds)}.")
        end = self._render_open_command() if self.dashboard is None else self._render_sights(self.dashboard)
        return [Text(), table, Text(), total, self._conclusion(), files, *end]

    def as_json(self) -> dict[str, Any]:
        """The outcome as JSON."""
        return {
            "well": self.succeeded,
            "seconds": round(self.seconds, 1),
            "folder": self.sandbox.folder,
            "dashboard": None if self.dashboard is None else self.dashboard._asdict(),
            "killed": None if self.kill is None else {"task": self.kill.task_id, "process": self.kill.process},
            "tasks": [
                {"task": task, "place": self.snapshot.holder_of(task), "attempts": self.attempts[task.id]}
                for task in self.snapshot.tasks
            ],
        }

    def _fields(self) -> Fields[Task]:
        return (
            (right("task"), lambda task: Text(str(task.id), style="bold")),
            ("status", lambda task: Text(task.status, style=STATUS_STYLES[task.status])),
            ("finished by", self.snapshot.holder_of),
            (right("ran"), format_run_time),
            (wide("file"), lambda task: str(_result_of(task).get("output", ""))),
            (right("size"), _format_output_size),
            ("failed attempts", self._describe_attempts),
        )

    def _describe_attempts(self, task: Task) -> Text:
        failed = "; ".join(attempt.cause or first_line(attempt.error) for attempt in self.attempts[task.id])
        return Text(failed, style="magenta")

    def _render_open_command(self) -> list[Text]:
        """How to see the same in the dashboard."""
        command = open_command(os.environ, sys.argv[0])
        lines = [Text.assemble("To see it in the dashboard: ", (command, "bold"))]
        if missing_packages():
            lines.append(Text.assemble("It needs an extra first: ", (f"pip install 'peerd[{EXTRA}]'", "bold")))
        return lines

    def _render_sights(self, login: DashboardLogin) -> list[RenderableType]:
        """The address again, and what to look at."""
        fields: Fields[tuple[str, str]] = (
            ("look at", lambda sight: Text(sight[0], style="bold")),
            (wide(""), lambda sight: Text(sight[1])),
        )
        heading = Text.assemble("The nodes go on until Ctrl-C. The dashboard: ", (str(login), "bold"))
        return [Text(), heading, AlignedTable(fields, self._sights())]

    def _sights(self) -> list[tuple[str, str]]:
        sights = [
            ("Tasks → a running one → Show the stack", "where its code is at this moment"),
            ("Tasks → a dead one", "a damaged file: why it failed, and a button to retry it"),
            ("Nodes → a node → State of its slots, now", "what each process does and uses"),
            ("Schedules → the poster → Run now", "what enqueues a task every 30 s"),
        ]
        if self.kill is not None:
            sights.insert(
                1, (f"Tasks → task {self.kill.task_id}", "its worker was killed, and another one finished it")
            )
        return sights

    def _conclusion(self) -> Text:
        if self.kill is None:
            return Text("No worker was killed: no transcode came far enough.", style="bold red")
        task = self._killed_task
        if task is None or not self._recovered:
            return Text(f"Task {self.kill.task_id} lost its worker and was not finished.", style="bold red")
        killed = f"{self.kill.node} {self.kill.process.slot} (process {self.kill.process.pid})"
        finisher = self.snapshot.processes[task.process_id or 0]
        finished_by = f"{self.snapshot.holder_of(task)} (process {finisher.pid})"
        return Text(f"Task {task.id} lost its worker {killed} and was finished by {finished_by}.", style="bold green")


def _result_of(task: Task) -> dict[str, Any]:
    return json.loads(task.result) if task.result else {}


def _format_output_size(task: Task) -> str:
    size = _result_of(task).get("size")
    return "" if size is None else format_size(int(size))
