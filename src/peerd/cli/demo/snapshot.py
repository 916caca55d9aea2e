"""What one look at the demo's tasks shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.store.nodes.processes import ProcessRecord


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """A worker process that the demo killed, and the task that it was doing."""

    task_id: int
    progress: float
    process: ProcessRecord
    node: str

    @property
    def description(self) -> str:
        """What happened."""
        return (
            f"kill -9 {self.process.pid}: worker {self.process.slot} of {self.node}, "
            f"in the middle of task {self.task_id} ({self.progress:.0%})"
        )


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """The tasks, the processes of all nodes by their identities, and the nodes' names by their ids."""

    tasks: Sequence[Task]
    processes: Mapping[int, ProcessRecord]
    nodes: Mapping[int, str]

    @classmethod
    def read(cls, client: Client, ids: Sequence[int]) -> Self:
        """Look at the table."""
        tasks = [task for task in (client.tasks.find(task_id) for task_id in ids) if task is not None]
        processes = {process.id: process for process in client.nodes.processes(ended=True)}
        return cls(tasks, processes, {node.id: node.name for node in client.nodes.list()})

    @property
    def ended(self) -> bool:
        """Whether all have ended."""
        return all(task.finished for task in self.tasks)

    def node_name(self, node_id: int | None) -> str:
        """A node's name."""
        return self.nodes.get(node_id or 0, "–")

    def holder_of(self, task: Task) -> str:
        """Which node and worker has a task, or had it last."""
        process = self.processes.get(task.process_id or 0)
        return "–" if process is None else f"{self.node_name(process.node_id)} {process.slot}"
