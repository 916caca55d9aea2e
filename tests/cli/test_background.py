"""`peerd start`, `restart`, `stop` and `logs`, with a real node in the background."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peerd.cli.project.init import EXAMPLE
from tests.cli.conftest import Peerd
from tests.supervision.nodes import StubNode

PEERD = [sys.executable, "-m", "peerd.cli"]


def call(*words: str, folder: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([*PEERD, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == status, (words, ran)
    return ran


@pytest.fixture
def folder(tmp_path: Path, peerd: Peerd) -> Iterator[Path]:
    (tmp_path / "jobs.py").write_text(EXAMPLE)
    (tmp_path / "peerd.toml").write_text('[node]\nname = "here"\n[workers.hello]\ntasks = "jobs:hello"\n')
    yield tmp_path
    peerd("stop", "--fast", status=None)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_runs_in_the_background_from_start_to_stop(folder: Path, peerd: Peerd) -> None:
    def here() -> Any:
        return peerd("status", "--json").json["here"]

    def pids() -> dict[str, int]:
        return {slot["name"]: slot["pid"] for slot in here()["slots"]}

    began = call("start", folder=folder).stdout
    assert "started node here: 3 processes" in began
    assert "hello-1  running" in began
    assert peerd("status", "--check", "--json").json == {"healthy": True, "failures": []}
    master = here()["pid"]
    assert (here()["background"], here()["log_file"]) == (True, str(folder / ".peerd" / "here" / "peerd.log"))
    assert f"running already, as process {master}" in call("start", folder=folder, status=4).stderr
    assert "no rescues yet" in peerd("logs", "manager").out
    assert "no line of this log is of nosuch; there are: agent, hello, manager" in peerd("logs", "nosuch", status=2).err
    assert "ready: 3 processes" not in peerd("logs", "manager").out

    first = pids()
    output = peerd("reload", "hello").out
    assert "replacing hello-1" in output
    assert "reloaded" in output
    second = pids()
    assert second["hello-1"] != first["hello-1"]
    assert second["agent"] == first["agent"], "the others are as they were"

    (folder / "jobs.py").write_text("import missing_module")
    error = peerd("reload", "--json", "hello", status=1).error
    assert error["type"] == "ReloadAbandoned"
    assert "missing_module" in error["message"]
    assert "jobs.py, line 1" in peerd("restart", status=3).err
    assert pids() == second
    assert "the last reload was abandoned" in peerd("status").out
    assert "there is no nobody" in peerd("reload", "nobody", status=1).err

    (folder / "jobs.py").write_text(EXAMPLE)
    assert peerd("scale", "hello", "2", "--json").json["scaled"] == {"kind": "hello", "before": 1, "processes": 2}
    assert pids()["hello-1"] == second["hello-1"]
    assert "hello-2" in pids()
    assert "hello has 0 processes, and had 2" in peerd("scale", "hello", "0").out
    assert "no kind 'nobody' to scale" in peerd("scale", "nobody", "2", status=1).err

    with subprocess.Popen([*PEERD, "logs", "-f", "-n0"], cwd=folder, stdout=subprocess.PIPE, text=True) as following:
        restarted = json.loads(call("restart", "--json", folder=folder).stdout)
        assert restarted["stopped"] is True
        assert restarted["here"]["pid"] != master
        assert following.stdout is not None
        assert any("ready: 3 processes" in line for line in following.stdout), "it follows"
        following.terminate()

    peerd("stop")
    assert "no node is running" in peerd("stop", status=1).err
    assert peerd("status", "--check", status=1).lines == ["no node is running here"]
    assert "ready: 3 processes" in peerd("logs").out, "the log stays"


@pytest.mark.slow
def test_a_node_that_cannot_start_in_the_background_shows_the_end_of_its_log(folder: Path, peerd: Peerd) -> None:
    (folder / "jobs.py").write_text("import missing_module")
    error = json.loads(call("start", "--json", folder=folder, status=3).stderr)["error"]
    assert f"No module named 'missing_module' ({folder}/jobs.py, line 1)" in error["message"]
    assert any("cannot start: hello-1" in line for line in error["log"])
    assert str(folder / ".peerd" / "here" / "peerd.log") in error["remedy"]


def test_a_restart_first_imports_the_code(folder: Path, peerd: Peerd) -> None:
    (folder / "jobs.py").write_text("import os\n\nimport missing_module\n")
    error = peerd("restart", "--json", status=3).error
    assert error["message"] == (
        "cannot start: worker hello: jobs:hello: importing jobs failed: ModuleNotFoundError: No module named "
        f"'missing_module' ({folder}/jobs.py, line 3)"
    )
    assert not (folder / ".peerd").exists(), "nothing was tried"


def test_logs_fails_without_a_node_and_a_log(folder: Path, peerd: Peerd) -> None:
    assert "peerd start writes one" in peerd("logs", status=1).err
    log = folder / ".peerd" / "here" / "peerd.log"
    log.parent.mkdir(parents=True)
    log.write_text("12:00:00.1 began slot=gone-1\n")
    assert "gone-1" in peerd("logs", "gone").out, "a kind that existed earlier"
    assert peerd("logs", "hello").out == "", "it has logged nothing so far"
    assert "no line of this log is of nosuch" in peerd("logs", "hello", "nosuch", status=2).err


def test_a_stop_that_takes_too_long_names_the_processes_it_waits_for_and_continues(
    tmp_path: Path, peerd: Peerd
) -> None:
    stub_node = StubNode(
        tmp_path, {"name": "agent", "role": "agent"}, {"name": "video-1", "until": str(tmp_path / "done")}
    )
    try:
        stub_node.up()
        stop = ("stop", "--run-directory", str(stub_node.run_directory))
        output = peerd(*stop, "--timeout", "200ms", status=1).err.replace("\n", " ")
        assert "has not ended within 200ms; it is still stopping and waits for agent, video-1" in output
        (tmp_path / "done").touch()
        assert "stopped" in peerd(*stop).out
    finally:
        assert not stub_node.clean_up()
