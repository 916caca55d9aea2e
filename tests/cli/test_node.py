"""The entry point: a real node from start to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from peerd.testing import eventually

PEERD = [sys.executable, "-m", "peerd.cli"]
START_TIMEOUT = 60


def call(*words: str, folder: Path, status: int = 0) -> str:
    ran = subprocess.run([*PEERD, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == status, (words, ran)
    return ran.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    call("init", str(tmp_path), folder=tmp_path)
    return tmp_path


@pytest.fixture
def node(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A node that is ready."""
    with started(folder) as node:
        yield node


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "log").open("w") as log:
        node = subprocess.Popen([*PEERD, "up", *options], cwd=folder, stderr=log, stdout=log, text=True)
    try:
        eventually(
            lambda: node.poll() is not None or "ready" in (folder / "log").read_text(),
            timeout=START_TIMEOUT,
            message=(folder / "log").read_text,
        )
        assert node.poll() is None, (folder / "log").read_text()
        yield node
    finally:
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)
            node.wait(60)


def test_a_first_task_runs_from_start_to_stop(node: subprocess.Popen[str], folder: Path) -> None:
    processes = [process.pid for process in psutil.Process(node.pid).children(recursive=True)]
    state = json.loads(call("status", "--json", folder=folder))
    assert state["here"]["pid"] == node.pid
    assert {slot["state"] for slot in state["here"]["slots"]} == {"RUNNING"}
    assert {"heartbeat", "orphan release"} <= {component["name"] for component in state["here"]["components"]}
    assert len(state["cluster"]["processes"]) == 3
    assert "hello-1" in call("status", folder=folder)
    assert json.loads(call("queues", "list", "--json", folder=folder))[0]["known"], "it is served"

    result = call("enqueue", "hello", "greet", '{"name": "you", "seconds": 0}', "--wait", folder=folder)
    assert json.loads(result) == {"greeting": "Hello, you!"}
    assert "done" in call("tasks", "list", folder=folder)

    assert "stopped" in call("stop", folder=folder)
    assert node.wait(30) == 0
    assert not [pid for pid in processes if psutil.pid_exists(pid)]
    assert "no node is running here" in call("status", folder=folder)
    call("stop", folder=folder, status=1)


def test_a_users_code_finds_the_configuration_that_the_node_was_started_with(folder: Path) -> None:
    (folder / "peerd.toml").rename(folder / "other.toml")
    (folder / "jobs.py").write_text(
        "from peerd import Client, Context, Queue\n"
        "hello = Queue('hello')\n"
        "@hello.task\n"
        "def whose(ctx: Context) -> str:\n"
        "    with Client.from_config() as client:\n"
        "        return str(client.tasks.get(ctx.task.id).id)\n"
    )
    with started(folder, "--config", "other.toml"):
        found = call("enqueue", "--config", "other.toml", "hello", "whose", "--wait", folder=folder)
    assert json.loads(found) == "1"


def test_a_second_node_of_the_same_folder_is_refused(node: subprocess.Popen[str], folder: Path) -> None:
    call("up", folder=folder, status=4)


def test_a_node_is_stopped_although_its_configuration_cannot_be_read(node: subprocess.Popen[str], folder: Path) -> None:
    run_directory = next((folder / ".peerd").iterdir())
    (folder / "peerd.toml").write_text("no [toml")
    call("stop", folder=folder, status=1)
    call("stop", "--run-directory", str(run_directory), folder=folder)
    assert node.wait(30) == 0


def test_a_node_is_found_by_another_path_of_its_folder(node: subprocess.Popen[str], folder: Path) -> None:
    link = folder.with_name(f"{folder.name}-link")
    link.symlink_to(folder)
    call("stop", "--timeout", "30s", "--config", str(link / "peerd.toml"), folder=folder.parent)
    assert node.wait(30) == 0


@pytest.mark.parametrize(
    ("sections", "wrong"),
    [
        (
            '[web.port]\napp = "jobs:hello"\nbind = "127.0.0.1:99999"\n[web.nowhere]\napp = "jobs:hello"\n',
            ["web.port.bind: '99999' is no port", "web.nowhere.bind: must be given"],
        ),
        (
            '[schedules.clock]\nrun = "jobs:hello"\ncron = "now and then"\n[schedules.kind]\nrun = "jobs:hello"\n',
            ["schedules.clock", "schedules.kind"],
        ),
    ],
    ids=["web", "schedules"],
)
def test_a_configuration_that_makes_no_sense_starts_nothing(folder: Path, sections: str, wrong: list[str]) -> None:
    with (folder / "peerd.toml").open("a") as file:
        file.write(sections)
    ran = subprocess.run([*PEERD, "up"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert not [words for words in wrong if words not in ran.stderr], ran.stderr
    assert not (folder / ".peerd").exists()


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
