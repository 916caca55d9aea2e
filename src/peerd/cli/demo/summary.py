"""How the demo ended: the summary, and whether all is well."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.demo.snapshot import DemoSnapshot, WorkerKill
from peerd.cli.output.formatting import STATUS_STYLES, first_line, format_elapsed
from peerd.cli.output.tables import AlignedTable, Column
from peerd.domain.lifecycle import Status
from peerd.domain.size import format_size
from peerd.domain.task import Attempt, Task
from peerd.operate.client import Client

COLUMNS = (
    Column("task", right=True),
    Column("status"),
    Column("finished by"),
    Column("ran", right=True),
    Column("file", wide=True),
    Column("size", right=True),
    Column("failed attempts", max_width=40),
)


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """What became of the tasks."""

    sandbox: DemoSandbox
    snapshot: DemoSnapshot
    attempts: Mapping[int, Sequence[Attempt]]
    kill: WorkerKill | None
    seconds: float

    @classmethod
    def of(
        cls, client: Client, sandbox: DemoSandbox, snapshot: DemoSnapshot, kill: WorkerKill | None, seconds: float
    ) -> Self:
        """Read what there is to tell."""
        return cls(
            sandbox, snapshot, {task.id: client.tasks.attempts(task.id) for task in snapshot.tasks}, kill, seconds
        )

    @property
    def succeeded(self) -> bool:
        """Whether all tasks are done, and the killed worker's task was finished by another process."""
        return all(task.status is Status.DONE for task in self.snapshot.tasks) and self.recovered

    @property
    def recovered(self) -> bool:
        """Whether another process finished the task of the worker that was killed."""
        if self.kill is None:
            return False
        task = next((one for one in self.snapshot.tasks if one.id == self.kill.task_id), None)
        return (
            task is not None
            and task.status is Status.DONE
            and task.process_id != self.kill.process.id
            and any(attempt.process_id == self.kill.process.id for attempt in self.attempts[task.id])
        )

    def render(self) -> RenderableType:
        """The summary table, and what it shows."""
        return Group(
            Text(),
            AlignedTable(COLUMNS, [self._row(task) for task in self.snapshot.tasks]),
            Text(),
            *self._conclusion(),
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "well": self.succeeded,
            "seconds": round(self.seconds, 1),
            "folder": self.sandbox.folder,
            "killed": None if self.kill is None else {"task": self.kill.task_id, "process": self.kill.process},
            "tasks": [
                {"task": task, "place": self.snapshot.holder_of(task), "attempts": self.attempts[task.id]}
                for task in self.snapshot.tasks
            ],
        }

    def _row(self, task: Task) -> list[Text]:
        result = _task_result(task)
        ran = run_seconds(task)
        failed = "; ".join(attempt.cause or first_line(attempt.error) for attempt in self.attempts[task.id])
        return [
            Text(str(task.id), style="bold"),
            Text(task.status, style=STATUS_STYLES[task.status]),
            Text(self.snapshot.holder_of(task)),
            Text(format_elapsed(ran)),
            Text(str(result.get("output", ""))),
            Text(format_size(int(result["size"])) if "size" in result else ""),
            Text(failed, style="magenta"),
        ]

    def _conclusion(self) -> list[Text]:
        done = sum(task.status is Status.DONE for task in self.snapshot.tasks)
        lines = [
            Text(
                f"{done} of {len(self.snapshot.tasks)} transcodes done and verified in {format_elapsed(self.seconds)}."
            )
        ]
        if self.recovered and self.kill is not None:
            task = next(one for one in self.snapshot.tasks if one.id == self.kill.task_id)
            killed_worker = f"{self.kill.node} {self.kill.process.slot} (process {self.kill.process.pid})"
            finisher = self.snapshot.processes[task.process_id or 0]
            finished_by = f"{self.snapshot.holder_of(task)} (process {finisher.pid})"
            lines.append(
                Text(
                    f"Task {task.id} lost its worker {killed_worker} and was finished by {finished_by}.",
                    style="bold green",
                )
            )
        elif self.kill is None:
            lines.append(Text("No worker was killed: no transcode came far enough.", style="bold red"))
        else:
            lines.append(Text(f"Task {self.kill.task_id} lost its worker and was not finished.", style="bold red"))
        lines.append(Text(f"The files are in {self.sandbox.media}; the nodes' logs are beside them.", no_wrap=True))
        return lines


def run_seconds(task: Task) -> float:
    """How long the last attempt ran."""
    if task.finished_at is None or task.worker_started_at is None:
        return 0.0
    return (task.finished_at - task.worker_started_at).total_seconds()


def _task_result(task: Task) -> dict[str, Any]:
    value = json.loads(task.result) if task.result else {}
    return value if isinstance(value, dict) else {}
