from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console, RenderableType

from peerd.cli.demo import snapshot as demo
from peerd.cli.output.tables import AlignedTable, Column, right, wide
from peerd.cli.tasks.watch import render_bars
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store.nodes.processes import ProcessRecord
from tests.support.rows import rows

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG_NOTE = "encoding frame 1234 of 5678 at 23.5 frames a second, with a very long note"


def running_task(task_id: int) -> Task:
    row = dict.fromkeys(Task.__struct_fields__)
    row |= {
        "id": task_id, "queue": "a-queue-with-a-long-name", "name": "transcode_and_publish", "status": Status.WORKING,
        "attempts": 0, "worker_node_id": 1, "process_id": 1, "worker_started_at": NOW, "progress": 0.5,
        "progress_note": LONG_NOTE,
    }  # fmt: skip
    return Task(**row)  # type: ignore[arg-type]


def draw(picture: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None, record=True, file=StringIO())
    console.print(picture)
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


TASKS = [running_task(task_id) for task_id in (7, 123_456)]


@rows("width", [100, 80, 60])
def test_bars_show_their_ids(width: int) -> None:
    process = ProcessRecord(
        id=1, node_id=1, incarnation="x", kind="video", slot="video-1", role="worker", pid=4711, started_at=NOW,
        checked_at=NOW, ended_at=None, cause=None,
    )  # fmt: skip
    console = Console(width=width, height=30, file=StringIO())
    of_demo = demo.DemoSnapshot(TASKS, {1: process}, {1: "demo-a-1a2b3c"})
    for bars, owner in (
        (render_bars(TASKS, {1: "a-node-with-a-long-name"}, NOW, console), ""),
        (demo.render_bars(of_demo, None), "demo-a-1a2b3c video-1"),
    ):
        lines = draw(bars, width)
        assert [line.split()[0] for line in lines] == ["7", "123456"]
        assert max(map(len, lines)) <= width
        assert width < 80 or all("50%" in line and owner in line for line in lines)


def test_columns_on_the_right_are_cut_before_those_on_the_left() -> None:
    columns = (right("id"), "name", Column("node", drop_priority=1), wide("note"))
    table = AlignedTable(columns, [("123456", "n" * 20, "m" * 20, "w" * 20)])
    assert draw(table, 80)[1] == f"  123456  {'n' * 20}  {'m' * 20}  {'w' * 20}"
    assert draw(table, 70)[1] == f"  123456  {'n' * 20}  {'m' * 20}  {'w' * 15}…"
    assert draw(table, 50)[1] == f"  123456  {'n' * 20}  {'w' * 17}…"
    assert draw(table, 34)[1] == f"  123456  {'n' * 13}…  {'w' * 7}…"
