"""Real nodes: `peerd up` in the foreground, one that watches its files, and one in the background."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from peerd.cli.project.init import EXAMPLE
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.cli.conftest import Peerd
from tests.supervision.nodes import StubNode

PEERD = [sys.executable, "-m", "peerd"]
TOML = '[node]\nname = "here"\n[workers.hello]\ntasks = "jobs:hello"\n'
START_TIMEOUT = 60
WHOSE = """\
from peerd import Client, Context, Queue
hello = Queue('hello')
@hello.task
def whose(ctx: Context) -> str:
    with Client.from_config() as client:
        return str(client.tasks.get(ctx.task.id).id)
"""


def call(*words: str, folder: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([*PEERD, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == status, (words, ran)
    return ran


@dataclass
class Node:
    """A node in the foreground of a folder."""

    folder: Path
    process: subprocess.Popen[str]


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Node]:
    """A node that is ready, and is stopped at the end."""
    log = folder / "log"
    with log.open("w") as file:
        node = subprocess.Popen([*PEERD, "up", *options], cwd=folder, stderr=file, stdout=file, text=True)
    try:
        eventually(
            lambda: node.poll() is not None or "ready" in log.read_text(), timeout=START_TIMEOUT, message=log.read_text
        )
        assert node.poll() is None, log.read_text()
        yield Node(folder, node)
    finally:
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)
            node.wait(60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "peerd.toml").write_text(TOML)
    (folder / "jobs.py").write_text(EXAMPLE)
    with started(folder) as node:
        yield node


@pytest.fixture
def node(shared: Node, peerd: Peerd, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The node of this module; commands are those of its folder."""
    monkeypatch.chdir(shared.folder)
    return shared


@pytest.fixture
def folder(tmp_path: Path, peerd: Peerd) -> Iterator[Path]:
    """A project of which no node runs."""
    (tmp_path / "peerd.toml").write_text(TOML)
    (tmp_path / "jobs.py").write_text(EXAMPLE)
    yield tmp_path
    peerd("stop", "--fast", status=None)


def test_a_node_in_the_foreground_is_not_restarted_into_the_background(peerd: Peerd, node: Node) -> None:
    assert "was not started in the background" in peerd("restart", status=1).err
    assert "has no log file" in peerd("logs", status=1).err
    call("up", folder=node.folder, status=4)  # a second node of the folder is refused
    assert node.process.poll() is None


def test_status_and_doctor_show_whether_the_doorbell_works_and_it_is_rung(
    peerd: Peerd, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rings_received() -> int:
        return int(peerd("status", "--json").json["here"]["doorbell"]["rings_received"])

    eventually(lambda: peerd("status", "--json").json["here"]["doorbell"]["works"])
    assert "doorbell works by datagrams, at 127.0.0.1:" in peerd("status").out
    works = {"level": "ok", "subject": "doorbell", "message": "works by datagrams", "remedy": "", "about": {}}
    assert works in peerd("doctor", "--json").json["findings"]
    received = rings_received()
    assert peerd("ring", "jobs", "--json").json == {"rung": ["jobs"]}
    eventually(lambda: rings_received() > received)
    monkeypatch.setenv("PEERD_DATABASE_URL", "mysql://nobody@127.0.0.1:9/nothing")
    assert "there is no secret" in peerd("ring", "--json", status=1).error["message"]
    assert "no queue" in peerd("ring", "no queue!", "--json", status=2).error["message"]


def test_a_first_task_runs_from_start_to_stop(peerd: Peerd, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [process.pid for process in psutil.Process(node.process.pid).children(recursive=True)]
    state = peerd("status", "--json").json
    assert {slot["state"] for slot in state["here"]["slots"]} == {"RUNNING"}
    assert {"heartbeat", "orphan release"} <= {component["name"] for component in state["here"]["components"]}
    assert len(state["cluster"]["processes"]) == 3
    assert "hello-1" in peerd("status").out

    done = call("enqueue", "hello", "greet", '{"name": "you", "seconds": 0}', "--wait", folder=node.folder)
    assert done.stdout == '{\n  "greeting": "Hello, you!"\n}\n'

    link = node.folder.with_name(f"{node.folder.name}-link")
    link.symlink_to(node.folder)
    monkeypatch.chdir(node.folder.parent)
    stop = ("stop", "--timeout", "30s", "--config", str(link / "peerd.toml"))
    assert "stopped" in peerd(*stop).out, "by another path of its folder"
    assert node.process.wait(30) == 0
    assert not [pid for pid in processes if psutil.pid_exists(pid)]
    peerd(*stop, status=1)
    monkeypatch.chdir(node.folder)
    assert "no node is running here" in peerd("status").out


@pytest.mark.slow
def test_a_users_code_finds_the_configuration_that_the_node_was_started_with(peerd: Peerd, folder: Path) -> None:
    """The port of its doorbell is in use, which is reported, and it works without."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        (folder / "other.toml").write_text(f"{TOML}[cluster]\nport = {taken.getsockname()[1]}\n")
        (folder / "peerd.toml").unlink()
        (folder / "jobs.py").write_text(WHOSE)
        options = ("--config", "other.toml")
        with started(folder, *options):
            assert peerd("enqueue", *options, "hello", "whose", "--wait").json == "1"
            assert not peerd("status", *options, "--json").json["here"]["doorbell"]["works"]
            eventually(lambda: "already in use" in peerd("status", *options).out)


def test_a_configuration_that_makes_no_sense_starts_nothing(peerd: Peerd, folder: Path) -> None:
    with (folder / "peerd.toml").open("a") as file:
        file.write('[web.port]\napp = "jobs:hello"\nbind = "127.0.0.1:99999"\n')
    assert "web.port.bind: '99999' is no port" in peerd("up", status=1).err.replace("\n", " ")
    assert not (folder / ".peerd").exists()


def test_a_node_does_not_start_on_a_server_without_tables(
    folder: Path, server_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERD_DATABASE_URL", server_database)
    assert "run `peerd migrate`" in call("up", folder=folder, status=1).stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_runs_in_the_background_from_start_to_stop(folder: Path, peerd: Peerd) -> None:
    def here() -> Any:
        return peerd("status", "--json").json["here"]

    def pids() -> dict[str, int]:
        return {slot["name"]: slot["pid"] for slot in here()["slots"]}

    began = call("start", folder=folder).stdout
    assert "hello-1  running" in began
    assert peerd("status", "--check", "--json").json == {"healthy": True, "failures": []}
    master = here()["pid"]
    assert (here()["background"], here()["log_file"]) == (True, str(folder / ".peerd" / "here" / "peerd.log"))
    assert f"running already, as process {master}" in call("start", folder=folder, status=4).stderr
    assert "there are: agent, hello, manager" in peerd("logs", "nosuch", status=2).err
    assert "ready: 3 processes" not in peerd("logs", "manager").out

    first = pids()
    assert "replacing hello-1" in peerd("reload", "hello").out
    second = pids()
    assert (second["hello-1"] != first["hello-1"], second["agent"] == first["agent"]) == (True, True)

    (folder / "jobs.py").write_text("import missing_module")
    abandoned = peerd("reload", "--json", "hello", status=1).error
    assert (abandoned["type"], abandoned["remedy"][:11]) == ("ReloadAbandoned", "peerd check")
    assert "jobs.py, line 1" in peerd("restart", status=3).err
    assert pids() == second
    assert "the last reload was abandoned" in peerd("status").out

    (folder / "jobs.py").write_text(EXAMPLE)
    assert peerd("scale", "hello", "2", "--json").json["scaled"] == {"kind": "hello", "before": 1, "processes": 2}
    assert (pids()["hello-1"], "hello-2" in pids()) == (second["hello-1"], True)
    assert "hello has 0 processes, and had 2" in peerd("scale", "hello", "0").out

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
    (folder / "jobs.py").write_text("import missing_module")
    error = json.loads(call("start", "--json", folder=folder, status=3).stderr)["error"]
    assert any("cannot start: hello-1" in line for line in error["log"])


def test_a_restart_first_imports_the_code(folder: Path, peerd: Peerd) -> None:
    (folder / "jobs.py").write_text("import os\n\nimport missing_module\n")
    assert f"'missing_module' ({folder}/jobs.py, line 3)" in peerd("restart", "--json", status=3).error["message"]
    assert not (folder / ".peerd").exists(), "nothing was tried"


def test_logs_fails_without_a_node_and_a_log(folder: Path, peerd: Peerd) -> None:
    assert "peerd start writes one" in peerd("logs", status=1).err
    log = folder / ".peerd" / "here" / "peerd.log"
    log.parent.mkdir(parents=True)
    log.write_text("12:00:00.1 began slot=gone-1\n")
    assert "gone-1" in peerd("logs", "gone").out, "a kind that existed earlier"
    assert peerd("logs", "hello").out == "", "it has logged nothing so far"
    assert "no line of this log is of nosuch" in peerd("logs", "hello", "nosuch", status=2).err


def test_a_stop_goes_on_when_it_takes_too_long_and_needs_no_configuration(tmp_path: Path, peerd: Peerd) -> None:
    stub_node = StubNode(
        tmp_path, {"name": "agent", "role": "agent"}, {"name": "video-1", "until": str(tmp_path / "done")}
    )
    try:
        stub_node.up()
        (tmp_path / "peerd.toml").write_text("no [toml")
        peerd("stop", status=1)
        stop = ("stop", "--run-directory", str(stub_node.run_directory))
        output = peerd(*stop, "--timeout", "200ms", status=1).err.replace("\n", " ")
        assert "has not ended within 200ms; it is still stopping and waits for agent, video-1" in output
        (tmp_path / "done").touch()
        assert "stopped" in peerd(*stop).out
    finally:
        assert not stub_node.clean_up()


@pytest.mark.slow
def test_what_runs_changed_code_is_replaced_and_a_changed_configuration_is_followed(folder: Path) -> None:
    def slots() -> dict[str, Any]:
        return {slot["name"]: slot for slot in control_client.status(folder / ".peerd" / "here")["slots"]}

    with started(folder, "--watch") as node:
        before = slots()
        (folder / "jobs.py").write_text(f"{EXAMPLE}\n")
        eventually(lambda: slots()["hello-1"]["generation"] == 2, timeout=START_TIMEOUT)
        assert [slots()[name]["pid"] for name in ("agent", "watcher")] == [
            before[name]["pid"] for name in ("agent", "watcher")
        ]
        (folder / "jobs.py").rename(folder / "jobs.txt")
        eventually(lambda: "the old processes stay" in (folder / "log").read_text(), timeout=START_TIMEOUT)
        (folder / "jobs.txt").rename(folder / "jobs.py")
        (folder / "peerd.toml").write_text(f"{TOML}processes = 2\n")
        eventually(lambda: "hello-2" in slots(), timeout=START_TIMEOUT)
        assert node.process.poll() is None


def test_without_watchfiles_the_error_names_the_package(
    peerd: Peerd, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert "pip install 'peerd[watch]'" in peerd("up", "--watch", status=1).err
