"""``peerd files watch``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from peerd.cli.command import CommandContext
from peerd.cli.errors import parse_duration_option
from peerd.cli.files.formats import disks_table, problems_of, styled_health
from peerd.cli.output import AlignedTable, LiveDisplay, first_line, pluralize, render_progress_bar, right, wide
from peerd.cli.tasks.show import node_names
from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.storage.checking import QUEUE
from peerd.store.files.disks import DiskCopies
from peerd.store.files.risks import FilesAtRisk

MOST_TASKS = 20
BAR_WIDTH = 20


class _Picture(msgspec.Struct):
    """What is shown: the disks, the files that are not settled, and the tasks of storage."""

    disks: list[DiskCopies]
    files: FilesAtRisk
    unfinished: int
    running: list[Task]
    names: Mapping[int, str]

    @property
    def is_settled(self) -> bool:
        """Whether nothing remains to be done."""
        return not self.files.counts and not self.unfinished and all(disk.walked_for is None for disk in self.disks)


def watch(
    context: CommandContext,
    every: Annotated[str, Option(metavar="DURATION", help="The interval.")] = "1s",
    until_settled: Annotated[
        bool, Option("--until-settled", help="End when no file needs anything, and no task of storage is left.")
    ] = False,
) -> None:
    """Show disks, files at risk, and the tasks that copy, remove and verify, until Ctrl-C."""
    pause = max(parse_duration_option("--every", every), 0.05)
    with LiveDisplay(context.out, silent=context.as_json, transient=False) as display:
        while True:
            picture = _read(context.client)
            if context.as_json:
                context.print_json_line(_as_json(picture))
            display.update(_render(picture))
            if until_settled and picture.is_settled:
                return
            time.sleep(pause)


def _read(client: Client) -> _Picture:
    counts = next((queue.counts for queue in client.queues.list() if queue.name == QUEUE), {})
    return _Picture(
        disks=client.disks.list(),
        files=client.files.at_risk(limit=1),
        unfinished=sum(counts.get(status, 0) for status in Status if status not in FINISHED),
        running=list(client.tasks.list(queue=QUEUE, status=Status.WORKING, limit=MOST_TASKS)),
        names=node_names(client),
    )


def _as_json(picture: _Picture) -> dict[str, Any]:
    tasks = [
        {"id": task.id, "name": task.name, "progress": task.progress, "note": task.progress_note}
        for task in picture.running
    ]
    return {
        "disks": picture.disks,
        "files": picture.files.counts,
        "unfinished_tasks": picture.unfinished,
        "running": tasks,
        "settled": picture.is_settled,
    }


def _render(picture: _Picture) -> RenderableType:
    walks = [
        Text(f"disk {disk.id}: all its files are being checked ({disk.walked_for})", "cyan")
        for disk in picture.disks
        if disk.walked_for is not None
    ]
    tasks = f"{pluralize(picture.unfinished, 'task')} left" if picture.unfinished else "no task left"
    return Group(
        disks_table(picture.disks),
        *problems_of(picture.disks),
        *walks,
        Text(),
        Text.assemble(("files  ", "bold"), *_counts(picture.files.counts)),
        Text.assemble(("tasks  ", "bold"), tasks),
        *([_tasks_table(picture.running, picture.names)] if picture.running else []),
    )


def _counts(counts: dict[str, int]) -> list[Text]:
    if not counts:
        return [Text("all are whole", "green")]
    return [Text.assemble(f"{count:,} ", styled_health(health), "  ") for health, count in sorted(counts.items())]


def _tasks_table(running: Sequence[Task], names: Mapping[int, str]) -> AlignedTable:
    rows: list[list[Text | str]] = [
        [
            str(task.id),
            task.name or "–",
            names.get(task.worker_node_id or 0, "–"),
            render_progress_bar(task.progress, BAR_WIDTH),
            first_line(task.progress_note),
        ]
        for task in running
    ]
    return AlignedTable([right("task"), "what", "node", "progress", wide("note")], rows)
