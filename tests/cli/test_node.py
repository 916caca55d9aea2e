"""The entry point: real nodes in the foreground, from start to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from peerd.cli.project.init import EXAMPLE
from peerd.testing import eventually
from tests.cli.conftest import Peerd
from tests.supervision.nodes import StubNode

PEERD = [sys.executable, "-m", "peerd.cli"]
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
def folder(tmp_path: Path, peerd: Peerd) -> Path:
    """A project of which no node runs."""
    (tmp_path / "peerd.toml").write_text(TOML)
    (tmp_path / "jobs.py").write_text(EXAMPLE)
    return tmp_path


def test_a_node_in_the_foreground_is_not_restarted_into_the_background(peerd: Peerd, node: Node) -> None:
    assert "was not started in the background" in peerd("restart", status=1).err
    assert "has no log file" in peerd("logs", status=1).err
    again = subprocess.run([*PEERD, "up"], cwd=node.folder, capture_output=True, timeout=60, check=False)
    assert again.returncode == 4, "a second node of the folder is refused"
    assert node.process.poll() is None


def test_status_and_doctor_show_whether_the_doorbell_works(peerd: Peerd, node: Node) -> None:
    def rings_received() -> int:
        return int(peerd("status", "--json").json["here"]["doorbell"]["rings_received"])

    eventually(lambda: peerd("status", "--json").json["here"]["doorbell"]["works"])
    assert "doorbell works by datagrams, at 127.0.0.1:" in peerd("status").out
    works = {"level": "ok", "subject": "doorbell", "message": "works by datagrams", "remedy": ""}
    assert works in peerd("doctor", "--json").json["findings"]
    received = rings_received()
    assert peerd("ring", "jobs", "--json").json == {"rung": ["jobs"]}
    eventually(lambda: rings_received() > received)


def test_a_first_task_runs_from_start_to_stop(peerd: Peerd, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [process.pid for process in psutil.Process(node.process.pid).children(recursive=True)]
    state = peerd("status", "--json").json
    assert state["here"]["pid"] == node.process.pid
    assert {slot["state"] for slot in state["here"]["slots"]} == {"RUNNING"}
    assert {"heartbeat", "orphan release"} <= {component["name"] for component in state["here"]["components"]}
    assert len(state["cluster"]["processes"]) == 3
    assert "hello-1" in peerd("status").out
    assert peerd("queues", "list", "--json").json[0]["known"], "it is served"

    done = subprocess.run(
        [*PEERD, "enqueue", "hello", "greet", '{"name": "you", "seconds": 0}', "--wait"],
        cwd=node.folder, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == '{\n  "greeting": "Hello, you!"\n}\n'
    assert "done" in peerd("tasks", "list").out

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


def test_a_node_is_stopped_although_its_configuration_cannot_be_read(peerd: Peerd, tmp_path: Path) -> None:
    stub_node = StubNode(tmp_path, {"name": "agent", "role": "agent"})
    try:
        stub_node.up()
        (tmp_path / "peerd.toml").write_text("no [toml")
        peerd("stop", status=1)
        assert "stopped" in peerd("stop", "--run-directory", str(stub_node.run_directory)).out
    finally:
        assert not stub_node.clean_up()


def test_a_configuration_that_makes_no_sense_starts_nothing(peerd: Peerd, folder: Path) -> None:
    with (folder / "peerd.toml").open("a") as file:
        file.write(
            '[web.port]\napp = "jobs:hello"\nbind = "127.0.0.1:99999"\n[web.nowhere]\napp = "jobs:hello"\n'
            '[schedules.clock]\nrun = "jobs:hello"\ncron = "now and then"\n[schedules.kind]\nrun = "jobs:hello"\n'
        )
    refused = peerd("up", status=1).err.replace("\n", " ")
    for words in (
        *("web.port.bind: '99999' is no port", "web.nowhere.bind: must be given"),
        *("schedules.clock", "schedules.kind"),
    ):
        assert words in refused
    assert not (folder / ".peerd").exists()


@pytest.mark.slow
def test_a_node_whose_code_cannot_be_imported_does_not_start(folder: Path) -> None:
    (folder / "jobs.py").write_text("import missing_module")
    ran = subprocess.run([*PEERD, "up"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 3
    assert "missing_module" in ran.stderr
    assert "Traceback" not in ran.stderr.split("missing_module")[-1]


def test_a_node_does_not_start_on_a_server_without_tables(folder: Path, server_database: str) -> None:
    ran = subprocess.run(
        [*PEERD, "up"], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PEERD_DATABASE_URL": server_database},
    )  # fmt: skip
    assert ran.returncode == 1
    assert "run `peerd migrate`" in ran.stderr


def test_ringing_without_a_secret_is_refused_with_the_remedy(peerd: Peerd, tmp_path: Path) -> None:
    (tmp_path / "peerd.toml").write_text('[database]\nurl = "mysql://nobody@127.0.0.1:9/nothing"\n')
    assert "there is no secret" in peerd("ring", "--json", status=1).error["message"]
    assert "no queue" in peerd("ring", "no queue!", "--json", status=2).error["message"]
