"""The demo from start to end, and after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.demo.running import processes_in


def run_demo(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PEERD_")}
    return subprocess.Popen(
        [sys.executable, "-m", "peerd", "demo", "--folder", str(folder), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


@pytest.mark.slow
def test_the_demo_shows_a_killed_workers_task_finished_by_another_process(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, "--json", "--tasks", "2")
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, err.decode()
    ending = json.loads(out)
    assert ending["well"]
    assert ending["dashboard"] is None
    killed = ending["killed"]
    [finished] = [row for row in ending["tasks"] if row["task"]["id"] == killed["task"]]
    assert finished["task"]["status"] == "done"
    assert finished["task"]["process_id"] != killed["process"]["id"]
    assert [attempt["cause"] for attempt in finished["attempts"]] == ["killed by SIGKILL"]
    for row in ending["tasks"]:
        file = tmp_path / "media" / json.loads(row["task"]["result"])["output"]
        assert file.stat().st_size == json.loads(row["task"]["result"])["size"]
    assert processes_in(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path, how: signal.Signals) -> None:
    demo = run_demo(tmp_path, "--tasks", "2")
    try:
        eventually(lambda: len(processes_in(tmp_path)) >= 5 or demo.poll() is not None, timeout=120)
        assert demo.poll() is None
        demo.send_signal(how)
        demo.wait(60)
        eventually(lambda: processes_in(tmp_path) == [], timeout=60)
    finally:
        demo.kill()
        demo.communicate()


def test_a_demo_whose_input_is_no_video_fails_with_the_cause(tmp_path: Path) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("Dear reader,\n" * 100)
    demo = run_demo(tmp_path / "demo", "--input", str(text), "--tasks", "2")
    _, err = demo.communicate(timeout=120)
    assert demo.returncode == 1
    assert b"is not a video" in err or b"letter.txt" in err, err
    assert b"Traceback" not in err
