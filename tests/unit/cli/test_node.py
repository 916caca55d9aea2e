from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from peerd.cli.command import to_json
from peerd.cli.node.local_node import render_node
from peerd.cli.node.logs import ROTATION_LINGER, LineFilter, LogFollower, end_of_lines, last_lines
from peerd.cli.node.status import find_failures
from peerd.cli.output import AlignedTable, Column, Fields, right, wide
from peerd.runtime.observability.log_file import rotate
from tests.support.rows import rows

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def slot(name: str, **more: Any) -> dict[str, Any]:
    unknown = dict.fromkeys(("last_cause", "error", "vitals", "silent_for", "sample", "replacing"))
    started_at = (NOW - timedelta(minutes=5)).isoformat()
    numbers = {"pid": 1234567, "generation": 1, "restarts": 0, "started_at": started_at, "leaving": []}
    return {"name": name, "role": "worker", "state": "RUNNING", **numbers, **unknown, **more}


VIDEO: dict[str, Any] = {
    "generation": 3, "restarts": 2, "vitals": {"lag": 0.003, "in_flight": 4},
    "sample": {"memory": 64_000_000, "cpu": 1.25}, "last_cause": {"text": "killed by SIGKILL"},
    "leaving": [{"pid": 4711, "generation": 2, "started_at": (NOW - timedelta(hours=2)).isoformat()}],
}  # fmt: skip
HERE: dict[str, Any] = {
    "node": "here", "pid": 7, "state": "running", "started_at": (NOW - timedelta(hours=1)).isoformat(),
    "run_directory": "/srv/studio/.peerd/here", "background": True, "reloads": [],
    "slots": [
        slot("agent"),
        slot("video-1", **VIDEO),
        slot("video-2", state="STARTING", vitals={"lag": None, "in_flight": None}, replacing="process 8 boots"),
        slot("cleanup-1", state="BACKOFF", pid=None, started_at=None, error="no \x1b[31mdisk"),
    ],
}  # fmt: skip


def drawn(width: int, **changed: Any) -> list[str]:
    console = Console(width=width, color_system=None, record=True, file=StringIO())
    console.print(render_node({**HERE, **changed}, NOW))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_wide_terminal_has_all_figures_and_columns_on_the_right_are_cut_first() -> None:
    lines = drawn(160)
    assert lines[0] == "node here running for 1 h, master is process 7 in the background"
    video = next(line for line in lines if "video-1" in line)
    assert video.split("  ")[-1].startswith("process 4711 of generation 2 is leaving, 2 h old; killed by SIGKILL")
    assert video.split()[:11] == ["video-1", "running", "3", "1234567", "5", "min", "2", "64", "MB", "125", "%"]
    assert "3 ms      4" in video
    assert "blocked" in next(line for line in lines if "video-2" in line)
    assert "–" in next(line for line in lines if "agent" in line), "what is not known"
    assert drawn(160, state="stopping")[0].startswith("node here stopping, up for 1 h, master is")
    columns: list[Column | str] = [right("id"), "name", Column("node", drop_priority=1), wide("note")]
    fields: Fields[Sequence[str]] = [(column, itemgetter(place)) for place, column in enumerate(columns)]
    table = AlignedTable(fields, [("123456", "n" * 20, "m" * 20, "w" * 20)])
    assert draw(table, 80)[1] == f"  123456  {'n' * 20}  {'m' * 20}  {'w' * 20}"
    assert draw(table, 70)[1] == f"  123456  {'n' * 20}  {'m' * 20}  {'w' * 15}…"
    assert draw(table, 50)[1] == f"  123456  {'n' * 20}  {'w' * 17}…"
    assert draw(table, 34)[1] == f"  123456  {'n' * 13}…  {'w' * 7}…"


@rows("width", [80, 60])
def test_a_narrow_terminal_has_fewer_figures_and_the_notes_below_them(width: int) -> None:
    lines = drawn(width)
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "cleanup-1: no \\x1b[31mdisk" in text, "whole, and harmless"
    assert "video-2: process 8 boots" in text
    titles = next(line for line in lines if "slot" in line).split()
    assert {"slot", "state", "pid", "up", "restarts", "tasks"} <= set(titles)
    assert ("gen" in titles) == (width == 80)


def test_silent_processes_failing_components_and_reloads_are_shown() -> None:
    measured = {"lag": 0.0, "in_flight": 1}
    slots = [slot("video-1", vitals=measured, silent_for=3.9), slot("video-2", vitals=measured, silent_for=75.0)]
    well = {"name": "heartbeat", "state": "running", "failures": 0, "last_error": None}
    ill = {"name": "prices", "state": "backoff", "failures": 3, "last_error": "OSError: no route\nto host"}
    lines = drawn(160, slots=slots, components=[well, ill])
    speaks, silent = [line for line in lines if "video-" in line]
    assert ("0 ms" in speaks, "silent" in speaks) == (True, False)
    assert ("silent 1 min" in silent, "no heartbeat for 1 min 15 s" in silent) == (True, True)
    assert lines[-1] == "component prices of the agent has failed 3 times in a row: OSError: no route"
    assert not any("heartbeat " in line and "no heartbeat" not in line for line in lines)
    ended = {"number": 1, "progress": "abandoned", "error": "video: no module", "kinds": {}}
    running = {"number": 2, "progress": "running", "error": None, "kinds": {"video": "replacing video-1"}}
    assert "the last reload was abandoned: video: no module" in drawn(120, reloads=[ended])
    lines = drawn(120, reloads=[ended, running])
    assert "reload running: video replacing video-1" in lines
    assert not any("abandoned" in line for line in lines)


WELL = {"now": None}


def node(*slots: dict[str, Any], state: str = "running", components: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"state": state, "slots": list(slots), "components": list(components)}


def in_state(state: str, silent_for: float | None = 0.5) -> dict[str, Any]:
    return {"name": "video-1", "state": state, "silent_for": silent_for}


def test_a_node_whose_processes_work_start_or_have_ended_by_themselves_is_healthy() -> None:
    for state in ("STARTING", "RUNNING", "DRAINING", "EXITED", "STOPPED"):
        for master in ("running", "starting"):
            assert list(find_failures(node(in_state(state), in_state(state, None), state=master), WELL)) == []
    once = node(components=({"name": "doorbell", "failures": 1},))
    assert list(find_failures(once, WELL)) == [], "one failure of a component is none of the node"


@rows("status, failure", [
    (None, "no node is running here"), (node(state="stopping"), "the node is stopping"),
    (node(in_state("BACKOFF")), "video-1 keeps failing, and is started again after a pause"),
    (node(in_state("RUNNING", 12.0)), "video-1 has been silent for 12 s"),
    (node(components=({"name": "doorbell", "failures": 3},)),
     "component doorbell of the agent has failed 3 times in a row"),
])  # fmt: skip
def test_what_keeps_a_node_from_its_work_is_named(status: dict[str, Any] | None, failure: str) -> None:
    assert list(find_failures(status, WELL)) == [failure]
    away = {"error": {"message": "the database does not answer"}}
    assert list(find_failures(status, away)) == [failure, "the database does not answer"]


def draw(picture: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None, record=True, file=StringIO())
    console.print(picture)
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


def test_json_cannot_control_a_terminal_and_keeps_its_value() -> None:
    value = {"\u202ekey": ["\x1b[2J \x9b \u2066 \u200f \u2028", "ä日 \ud800"[:-2]]}
    text = to_json(value)
    assert not {one for one in text if not one.isprintable()}
    assert "ä日" in text
    assert json.loads(text) == value


def last(path: Path, count: int, *slots: str) -> list[str]:
    return last_lines(path, count, LineFilter(slots), end_of_lines(path))


def test_the_last_lines_include_rotated_files_and_are_whole(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    for part in ("one\ntwo\n", "three\n\nfour\n", "five\nhalf a li"):
        if log.exists():
            rotate(log, keep=5)
        log.write_text(part)
    everything = ["one", "two", "three", "", "four", "five"]
    assert [last(log, count) for count in (1, 4, 99, 0)] == [["five"], everything[2:], everything, []]
    log = tmp_path / "long.log"
    lines = [f"{number:06} {'x' * (number % 500)}" for number in range(5_000)] + ["y" * 200_000]
    log.write_text("\n".join(lines) + "\n")
    assert last(log, 5_001) == lines, "also those longer than a block"
    assert last(log, 2) == lines[-2:]


def test_lines_of_a_slot_or_of_all_of_a_kind(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    log.write_text(
        "2026-11-21 10:00:00.1 [info] task done slot=video-1 node=here\n"
        "2026-11-21 10:00:01.1 [error] attempt failed slot=video-12\n"
        "Traceback (most recent call last):\n"
        "ValueError: no\n"
        "2026-11-21 10:00:02.1 [info] task done slot=video-hd-1\n"
        "2026-11-21 10:00:03.1 peerd here: video-1 (process 7) died: killed by SIGKILL\n"
        '{"event": "task done", "slot": "video-1"}\n'
        "video-1: did not end in time, and is killed now; its threads are here:\n"
    )
    ends = [line.split()[-1] for line in last(log, 99, "video-1")]
    assert ends == ["node=here", "SIGKILL", '"video-1"}', "here:"]
    assert [line.split()[-1] for line in last(log, 99, "video-12")] == ["slot=video-12", "last):", "no"]
    assert len(last(log, 99, "video")) == 7
    assert len(last(log, 99, "video-12", "video-hd")) == 4


def test_a_log_is_followed_across_its_rotation(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    log.write_text("before\n")
    follower = LogFollower(log, end_of_lines(log))
    with log.open("a") as old:
        print("one\nhalf", file=old, end="", flush=True)
        assert list(follower.read(0.0)) == ["one"]
        rotate(log, keep=1)
        assert list(follower.read(1.0)) == [], "the new one is not there yet"
        log.write_text("three\n")
        print(" is whole", file=old, flush=True)
        assert list(follower.read(2.0)) == ["half is whole", "three"]
        print("late", file=old, flush=True)
        assert list(follower.read(3.0)) == ["late"], "a process had not opened the new one yet"
    assert list(follower.read(3.0 + ROTATION_LINGER)) == []
    with log.open("a") as new:
        print("four", file=new)
    assert list(follower.read(99.0)) == ["four"]
    follower.close()
