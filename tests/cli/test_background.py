"""`peerd start`, `restart`, `stop` and `logs`, with a real node in the background."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peerd.testing import eventually

PEERD = [sys.executable, "-m", "peerd.cli"]


def call(*words: str, folder: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([*PEERD, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == status, (words, ran)
    return ran


def asked(*words: str, folder: Path, status: int = 0) -> Any:
    return json.loads(call(*words, "--json", folder=folder, status=status).stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    call("init", str(tmp_path), folder=tmp_path)
    (tmp_path / "peerd.toml").write_text('[node]\nname = "here"\n[workers.hello]\ntasks = "jobs:hello"\n')
    yield tmp_path
    subprocess.run([*PEERD, "stop", "--fast"], cwd=tmp_path, capture_output=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_node_lives_in_the_background_from_start_to_stop(folder: Path) -> None:
    began = call("start", folder=folder).stdout
    assert "started node here: 3 processes" in began
    assert "hello-1  running" in began
    here = asked("status", folder=folder)["here"]
    assert (here["background"], here["log_file"]) == (True, str(folder / ".peerd" / "here" / "peerd.log"))

    again = call("start", folder=folder, status=4).stderr
    assert f"running already, as process {here['pid']}" in again

    assert "no rescues yet" in call("logs", "manager", folder=folder).stdout
    assert "ready: 3 processes" not in call("logs", "manager", folder=folder).stdout
    with subprocess.Popen([*PEERD, "logs", "-f", "-n0"], cwd=folder, stdout=subprocess.PIPE, text=True) as following:
        restarted = asked("restart", folder=folder)
        assert restarted["stopped"] is True
        assert restarted["here"]["pid"] != here["pid"]
        assert following.stdout is not None
        assert any("ready: 3 processes" in line for line in following.stdout), "it follows"
        following.terminate()

    call("stop", folder=folder)
    assert "no node is running" in call("stop", folder=folder, status=1).stderr
    assert "ready: 3 processes" in call("logs", folder=folder).stdout, "the log stays"


def test_a_node_that_cannot_start_in_the_background_shows_the_end_of_its_log(folder: Path) -> None:
    (folder / "jobs.py").write_text("import missing_module")
    error = json.loads(call("start", "--json", folder=folder, status=3).stderr)["error"]
    assert "No module named 'missing_module'" in error["message"]
    assert any("cannot start: hello-1" in line for line in error["log"])
    assert str(folder / ".peerd" / "here" / "peerd.log") in error["remedy"]


def test_a_node_in_the_foreground_is_not_restarted_into_the_background(folder: Path) -> None:
    with (folder / "log").open("w") as log:
        node = subprocess.Popen([*PEERD, "up"], cwd=folder, stderr=log, stdout=log)
    eventually(lambda: "ready" in (folder / "log").read_text(), timeout=60)
    assert "was not started in the background" in call("restart", folder=folder, status=1).stderr
    assert "has no log file" in call("logs", folder=folder, status=1).stderr
    assert node.poll() is None
    call("stop", folder=folder)
    assert node.wait(30) == os.EX_OK


def test_without_a_node_and_a_log_it_says_so(folder: Path) -> None:
    assert "peerd start writes one" in call("logs", folder=folder, status=1).stderr
