"""How the demo ended: the summary, and whether all is well."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.demo.sandbox import Stage
from peerd.cli.demo.snapshot import Murder, Scene
from peerd.cli.output.formatting import STYLES, first_line, span
from peerd.cli.output.tables import Column, Rows
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
    Column("failed attempts", most=40),
)


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of the tasks."""

    stage: Stage
    scene: Scene
    attempts: Mapping[int, Sequence[Attempt]]
    murder: Murder | None
    seconds: float

    @classmethod
    def of(cls, client: Client, stage: Stage, scene: Scene, murder: Murder | None, seconds: float) -> Self:
        """Read what there is to tell."""
        return cls(stage, scene, {task.id: client.tasks.attempts(task.id) for task in scene.tasks}, murder, seconds)

    @property
    def well(self) -> bool:
        """Whether all tasks are done, and the killed worker's task was finished by another process."""
        return all(task.status is Status.DONE for task in self.scene.tasks) and self.handed_over

    @property
    def handed_over(self) -> bool:
        """Whether another process finished the task of the worker that was killed."""
        if self.murder is None:
            return False
        task = next((one for one in self.scene.tasks if one.id == self.murder.task_id), None)
        return (
            task is not None
            and task.status is Status.DONE
            and task.process_id != self.murder.process.id
            and any(attempt.process_id == self.murder.process.id for attempt in self.attempts[task.id])
        )

    def for_people(self) -> RenderableType:
        """The summary table, and what it shows."""
        return Group(Text(), Rows(COLUMNS, [self._row(task) for task in self.scene.tasks]), Text(), *self._verdict())

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "well": self.well,
            "seconds": round(self.seconds, 1),
            "folder": self.stage.folder,
            "killed": None if self.murder is None else {"task": self.murder.task_id, "process": self.murder.process},
            "tasks": [
                {"task": task, "place": self.scene.place(task), "attempts": self.attempts[task.id]}
                for task in self.scene.tasks
            ],
        }

    def _row(self, task: Task) -> list[Text]:
        result = _result(task)
        ran = seconds_run(task)
        failed = "; ".join(attempt.cause or first_line(attempt.error) for attempt in self.attempts[task.id])
        return [
            Text(str(task.id), style="bold"),
            Text(task.status, style=STYLES[task.status]),
            Text(self.scene.place(task)),
            Text(span(ran)),
            Text(str(result.get("output", ""))),
            Text(format_size(int(result["size"])) if "size" in result else ""),
            Text(failed, style="magenta"),
        ]

    def _verdict(self) -> list[Text]:
        done = sum(task.status is Status.DONE for task in self.scene.tasks)
        lines = [Text(f"{done} of {len(self.scene.tasks)} transcodes are done and verified, in {span(self.seconds)}.")]
        if self.handed_over and self.murder is not None:
            task = next(one for one in self.scene.tasks if one.id == self.murder.task_id)
            victim = f"{self.murder.node} {self.murder.process.slot} (process {self.murder.process.pid})"
            ender = self.scene.processes[task.process_id or 0]
            heir = f"{self.scene.place(task)} (process {ender.pid})"
            lines.append(
                Text(f"Task {task.id} lost its worker {victim} and was finished by {heir}.", style="bold green")
            )
        elif self.murder is None:
            lines.append(Text("No worker was killed: no transcode came far enough.", style="bold red"))
        else:
            lines.append(Text(f"Task {self.murder.task_id} lost its worker and was not finished.", style="bold red"))
        lines.append(Text(f"The files are in {self.stage.media}; the nodes' logs are beside them.", no_wrap=True))
        return lines


def seconds_run(task: Task) -> float:
    """How long the last attempt ran."""
    if task.finished_at is None or task.worker_started_at is None:
        return 0.0
    return (task.finished_at - task.worker_started_at).total_seconds()


def _result(task: Task) -> dict[str, Any]:
    value = json.loads(task.result) if task.result else {}
    return value if isinstance(value, dict) else {}
