"""The demo from start to end, and after an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.demo.running import running_demo

pytestmark = pytest.mark.slow


def test_the_demo_shows_a_killed_workers_task_finished_by_another_process(tmp_path: Path, clip: str) -> None:
    folder = tmp_path / "demo"
    with running_demo(tmp_path, "--folder", str(folder), "--json", "--tasks", "2", "--input", clip) as demo:
        assert demo.process.wait(300) == 0, demo.err
    ending = json.loads(demo.out)
    assert ending["well"]
    assert ending["dashboard"] is None
    killed = ending["killed"]
    [finished] = [row for row in ending["tasks"] if row["task"]["id"] == killed["task"]]
    assert finished["task"]["status"] == "done"
    assert finished["task"]["process_id"] != killed["process"]["id"]
    assert [attempt["cause"] for attempt in finished["attempts"]] == ["killed by SIGKILL"]
    for row in ending["tasks"]:
        file = folder / "media" / json.loads(row["task"]["result"])["output"]
        assert file.stat().st_size == json.loads(row["task"]["result"])["size"]
    assert demo.processes() == []


def test_a_killed_demo_leaves_no_process_behind(tmp_path: Path, clip: str) -> None:
    with running_demo(tmp_path, "--tasks", "2", "--input", clip) as demo:
        eventually(lambda: len(demo.processes()) >= 5 or demo.process.poll() is not None, timeout=120)
        assert demo.process.poll() is None
        demo.process.kill()
        demo.process.wait(60)
        eventually(lambda: demo.processes() == [], timeout=60)


def test_a_demo_whose_input_is_no_video_fails_with_the_cause(tmp_path: Path) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("Dear reader,\n" * 100)
    with running_demo(tmp_path, "--input", str(text), "--tasks", "2") as demo:
        assert demo.process.wait(120) == 1
    assert "is not a video" in demo.err or "letter.txt" in demo.err, demo.err
    assert "Traceback" not in demo.err
