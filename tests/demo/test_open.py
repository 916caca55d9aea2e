"""The demo with the dashboard: what it shows, how it ends, and what prevents it."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from peerd import Client
from peerd.cli.demo.dashboard import PACKAGES, open_command
from peerd.testing import eventually
from tests.demo.running import RunningDemo, running_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def address_of(demo: RunningDemo) -> str:
    """The dashboard's address, as soon as it is printed."""

    def find() -> str | None:
        assert demo.process.poll() is None, demo.err
        found = re.search(r"The dashboard is open, served by demo-a: (http://127\.0\.0\.1:\d+/)", demo.out)
        return found and found[1]

    return str(eventually(find, timeout=240))


def tasks_of(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(read(f"{address}api/v1/tasks?limit=100"))["items"]
    return found


def test_an_open_demo_has_something_on_each_page_until_ctrl_c_and_leaves_nothing_behind(
    tmp_path: Path, clip: str
) -> None:
    with running_demo(tmp_path, "--open", "--tasks", "2", "--input", clip) as demo:
        address = address_of(demo)
        assert "<h1>Overview" in read(address)
        eventually(lambda: f"The dashboard: {address}" in demo.out, timeout=240)  # again, after the summary
        eventually(lambda: "Tasks → a running one → Show the stack" in demo.out)  # it is written line by line

        seen: set[str] = set()

        def have_all_been_seen() -> bool:
            for one in tasks_of(address):
                is_damaged = "damaged.mp4" in str(one["error"])
                seen.add(f"{one['status']} {one['name']}{' of the damaged file' if is_damaged else ''}")
            return {
                "done transcode",
                "scheduled transcode",
                "dead transcode of the damaged file",
                "done poster",
            } <= seen

        eventually(have_all_been_seen, timeout=240)
        assert "-poster" in read(f"{address}schedules")
        assert "demo-b" in read(f"{address}nodes")
        assert "dead" in read(f"{address}alerts?shown=all")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(60) == 0, demo.err
        assert "The nodes have stopped" in demo.out
        assert demo.processes() == []
        assert list(demo.temporary.iterdir()) == []


@pytest.mark.parametrize("server_database", ["mariadb"], indirect=True)
def test_a_terminated_demo_leaves_no_process_no_folder_and_no_unfinished_task_in_a_shared_database(
    tmp_path: Path, server_database: str, clip: str
) -> None:
    options = ("--open", "--tasks", "2", "--input", clip, "--database", server_database)
    with running_demo(tmp_path, *options) as demo, Client(server_database) as client:
        eventually(lambda: "The dashboard: " in demo.out or demo.process.poll() is not None, timeout=240)
        eventually(lambda: client.tasks.list(status="scheduled"), timeout=60)
        demo.process.terminate()
        assert demo.process.wait(60) == 0, demo.err
        assert demo.processes() == []
        tasks = client.tasks.list(limit=100)
        assert all(task.finished for task in tasks)
        assert [task for task in tasks if task.status == "canceled" and task.error == "the demo has ended"]
        assert list(demo.temporary.iterdir()) == []


def test_after_a_demo_that_did_not_succeed_the_logs_stay(tmp_path: Path, clip: str) -> None:
    with running_demo(tmp_path, "--open", "--tasks", "2", "--input", clip, "--timeout", "1s") as demo:
        address = address_of(demo)
        eventually(lambda: f"The dashboard: {address}" in demo.out, timeout=60)
        assert read(address)
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(60) == 1
        assert "the demo did not end as expected" in demo.err
        assert demo.processes() == []
        [folder] = demo.temporary.iterdir()
        assert str(folder) in demo.err
        assert (folder / "demo-a.log").stat().st_size > 0


def test_what_prevents_the_dashboard_is_an_error_with_its_remedy_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")  # as if not installed
    without = {"PYTHONPATH": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for number, (options, variables, status, words) in enumerate(
            (
                (("--open", "--port", port), {}, 1, (f"port {port} is taken", "another one with --port")),
                (("--port", "8080"), {}, 2, ("add --open",)),
                (("--open",), without, 1, ("this needs jinja2: pip install 'peerd[dashboard]'",)),
            )
        ):
            folder = tmp_path / str(number)
            folder.mkdir()
            with running_demo(folder, *options, variables=variables) as demo:
                assert demo.process.wait(60) == status, options
            assert [word for word in words if word not in demo.err] == [], demo.err
            assert list(demo.temporary.iterdir()) == []


def test_the_packages_that_are_looked_for_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    required = {re.split(r"[<>=]", one)[0] for one in (*extras["dashboard"], *extras["web"])} - {"peerd[web]"}
    assert set(PACKAGES.values()) == required


def test_a_demo_by_make_ends_with_the_command_that_opens_the_dashboard(tmp_path: Path, clip: str) -> None:
    environment = tmp_path / "environment"
    environment.mkdir()
    (environment / "bin").symlink_to(Path(sys.executable).parent)
    for name in ("pyvenv.cfg", ".user"):  # newer than what they are made of: nothing is installed
        (environment / name).touch()
    make = ("make", "--directory", str(ROOT), "demo", f"VENV={environment}", f"ARGUMENTS=--tasks 2 --input {clip}")
    with running_demo(tmp_path, command=make) as demo:
        assert demo.process.wait(180) == 0, demo.err
        assert "To see it in the dashboard: make demo ARGUMENTS=--open" in demo.out


def test_the_command_that_opens_the_dashboard_is_the_one_that_was_used(tmp_path: Path) -> None:
    program = tmp_path / "peerd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert open_command({"PATH": str(tmp_path)}, str(program)) == "peerd demo --open"
    assert open_command({"PATH": "/nowhere"}, str(program)) == f"{program} demo --open"
    assert open_command({}, "/somewhere/peerd/__main__.py") == f"{sys.executable} -m peerd demo --open"
    assert open_command({"PEERD_DEMO_RUN_BY": "make"}, str(program)) == "make demo ARGUMENTS=--open"
