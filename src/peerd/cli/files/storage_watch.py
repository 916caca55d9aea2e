"""``peerd files watch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from peerd.cli import following
from peerd.cli.command import CommandContext
from peerd.cli.files.catalogue import styled_health
from peerd.cli.files.disks import disks_table, problems_of
from peerd.cli.output import UNKNOWN, AlignedTable, Fields, first_line, pluralize, render_progress_bar, right, wide
from peerd.cli.tasks.show import node_names
from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.storage.checking import QUEUE
from peerd.store.files.disks import DiskCopies

MOST_TASKS = 20
BAR_WIDTH = 20


def watch(
    context: CommandContext,
    every: Annotated[str, Option(metavar="DURATION", help="The interval.")] = "1s",
    until_settled: Annotated[
        bool, Option("--until-settled", help="End when no file needs anything, and no task of storage is left.")
    ] = False,
) -> None:
    """Show disks, files at risk, and the tasks that copy, remove and verify, until Ctrl-C."""
    following.watch(
        context,
        every,
        draw=lambda: _draw(context.client),
        is_last=lambda answer: until_settled and bool(answer["settled"]),
    )


def _draw(client: Client) -> tuple[dict[str, Any], RenderableType]:
    """The disks, the files that are not settled, and the tasks of storage, for programs and for people."""
    counts = next((queue.counts for queue in client.queues.list() if queue.name == QUEUE), {})
    unfinished = sum(counts.get(status, 0) for status in Status if status not in FINISHED)
    disks, files = client.disks.list(), client.files.at_risk(limit=1).counts
    running = client.tasks.list(queue=QUEUE, status=Status.WORKING, limit=MOST_TASKS)
    tasks = [
        {"id": task.id, "name": task.name, "progress": task.progress, "note": task.progress_note} for task in running
    ]
    is_settled = not files and not unfinished and all(disk.walked_for is None for disk in disks)
    answer = {"disks": disks, "files": files, "unfinished_tasks": unfinished, "running": tasks, "settled": is_settled}
    return answer, _render(disks, files, unfinished, running, node_names(client))


def _render(
    disks: Sequence[DiskCopies],
    files: dict[str, int],
    unfinished: int,
    running: Sequence[Task],
    names: Mapping[int, str],
) -> RenderableType:
    walks = [
        Text(f"disk {disk.id}: all its files are being checked ({disk.walked_for})", "cyan")
        for disk in disks
        if disk.walked_for is not None
    ]
    left = f"{pluralize(unfinished, 'task')} left" if unfinished else "no task left"
    return Group(
        disks_table(disks),
        *problems_of(disks),
        *walks,
        Text(),
        Text.assemble(("files  ", "bold"), *_counts(files)),
        Text.assemble(("tasks  ", "bold"), left),
        *([_tasks_table(running, names)] if running else []),
    )


def _counts(counts: dict[str, int]) -> list[Text]:
    if not counts:
        return [Text("all are whole", "green")]
    return [Text.assemble(f"{count:,} ", styled_health(health), "  ") for health, count in sorted(counts.items())]


def _tasks_table(running: Sequence[Task], names: Mapping[int, str]) -> AlignedTable:
    fields: Fields[Task] = (
        (right("task"), lambda task: str(task.id)),
        ("what", lambda task: task.name or UNKNOWN),
        ("node", lambda task: names.get(task.worker_node_id or 0, UNKNOWN)),
        ("progress", lambda task: render_progress_bar(task.progress, BAR_WIDTH)),
        (wide("note"), lambda task: first_line(task.progress_note)),
    )
    return AlignedTable(fields, running)
