"""A node in the background: detached, ready or with the cause of its failure, and alone in its run directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.supervision.nodes import AGENT, WORKER, StubNode

START = """
import json, sys
from peerd.supervision.daemonize import NodeStartError, start_in_background
try:
    answer = start_in_background(json.loads(sys.argv[1]), float(sys.argv[2]))
except NodeStartError as error:
    answer = {"why": str(error), "status": error.status, "said": error.output}
print(json.dumps(answer))
"""


class BackgroundNode(StubNode):
    """A node whose master is not a child of the test's process."""

    def __init__(self, folder: Path, *slots: dict[str, Any]) -> None:
        super().__init__(folder, *slots, log_file=str(folder / "logs" / "peerd.log"), background=True)
        self.log = folder / "logs" / "peerd.log"

    def begin(self, timeout: float = 30.0) -> dict[str, Any]:
        name, _, value = self.mark.partition("=")
        ran = subprocess.run(
            [sys.executable, "-c", START, json.dumps(self.plan), str(timeout)],
            capture_output=True, text=True, check=True, timeout=60, env={**os.environ, name: value},
        )  # fmt: skip
        assert not ran.stderr
        answer: dict[str, Any] = json.loads(ran.stdout)
        return answer


Make = Callable[..., BackgroundNode]


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Make]:
    made: list[BackgroundNode] = []

    def make(*slots: dict[str, Any]) -> BackgroundNode:
        made.append(BackgroundNode(tmp_path, *slots))
        return made[-1]

    yield make
    [one] = made
    with suppress(control_client.MasterNotRunning):
        control_client.stop(one.run_directory, fast=True, timeout=60)
    eventually(lambda: not one.processes())


def test_a_node_in_the_background_is_ready_and_detached_whatever_its_log_is_called(background: Make) -> None:
    stub_node = background(AGENT, WORKER)
    stub_node.log = stub_node.folder / "log; touch pwned $(touch pwned) `touch pwned` & '\"\n.log"
    stub_node.plan["log_file"] = str(stub_node.log)
    status = stub_node.begin()
    assert (status["state"], status["background"], status["log_file"]) == ("running", True, str(stub_node.log))
    assert status["run_directory"] == str(stub_node.run_directory)
    master = status["pid"]
    assert os.getsid(master) == master, "it has a session of its own"
    process, worker = Path(f"/proc/{master}"), Path(f"/proc/{stub_node.slot('video-1')['pid']}")
    assert (process / "fd/0").readlink() == Path("/dev/null")
    assert {(process / "fd/1").readlink(), (process / "fd/2").readlink(), (worker / "fd/2").readlink()} == {
        stub_node.log
    }
    assert (process / "cwd").readlink() == Path(stub_node.plan["project_directory"])
    assert "ready: 2 processes" in stub_node.log.read_text()
    assert not list(stub_node.folder.rglob("pwned")), "no shell reads the name"
    assert not Path("pwned").exists()


def test_a_node_that_cannot_start_reports_the_reason_of_this_start_and_leaves_nothing_behind(background: Make) -> None:
    stub_node = background(AGENT, {**WORKER, "start": ["fail no ffmpeg here"]})
    stub_node.log.parent.mkdir()
    stub_node.log.write_text("peerd stubs: cannot start: that was yesterday\n")
    answer = stub_node.begin()
    assert "RuntimeError: no ffmpeg here" in answer["why"]
    assert answer["status"] == exit_codes.BOOT_FAILED
    assert any("Traceback" in line for line in answer["said"])
    assert "yesterday" not in json.dumps(answer)
    assert not stub_node.processes()


@pytest.mark.slow
def test_a_node_that_is_not_ready_in_time_is_stopped_again_and_names_the_missing_slots(background: Make) -> None:
    stub_node = background(AGENT, {**WORKER, "start": ["sleep 60"]}, {"name": "video-2"})
    why = ""
    for timeout in (2.0, 8.0, 32.0):  # on a slow machine the agent and video-2 are not ready in the shorter ones either
        why = stub_node.begin(timeout=timeout)["why"]
        waited_for = why.removeprefix("it was not ready in time, and was stopped; it had waited for ").split(", ")
        assert not stub_node.processes()
        if waited_for == ["video-1 STARTING"]:
            return
    raise AssertionError(why)


def test_of_two_that_start_a_node_at_once_one_does(background: Make) -> None:
    stub_node = background(AGENT)
    answers: list[dict[str, Any]] = []
    both = [threading.Thread(target=lambda: answers.append(stub_node.begin())) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(30)
    ready = [answer for answer in answers if "pid" in answer]
    refused = [answer for answer in answers if answer.get("status") == exit_codes.ALREADY_RUNNING]
    assert (len(ready), len(refused)) == (1, 1)
    assert control_client.find_running_master(stub_node.run_directory) == ready[0]["pid"]
    assert "already running" not in stub_node.log.read_text(), "the log is the running node's"
