"""The demo from start to end, with the dashboard; how it ends when it is stopped or fails, and what prevents it."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from peerd import Client
from peerd.cli.demo.dashboard import PACKAGES, open_command
from peerd.cli.demo.sample_clip import generated_sample
from peerd.testing import eventually
from tests.demo.running import RunningDemo, running_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SEEN = {"done transcode", "scheduled transcode", "dead transcode of the damaged file", "done poster"}
CLIP_SECONDS = 5


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A short video: its path."""
    return str(generated_sample(tmp_path_factory.mktemp("clip"), CLIP_SECONDS).path)


@contextmanager
def logged_in(address: str, name: str, password: str) -> Iterator[httpx.Client]:
    """A browser of the dashboard."""
    with httpx.Client(base_url=address, follow_redirects=True, timeout=60) as browser:
        assert browser.post("/login", data={"name": name, "password": password}).status_code == 200
        yield browser


def login_of(demo: RunningDemo) -> tuple[str, str, str]:
    """The dashboard's address and its login, as soon as they are printed."""
    login = r"(http://127\.0\.0\.1:\d+/) \(log in as (\S+), password (\S+)\)"

    def find() -> tuple[str, str, str] | None:
        assert demo.process.poll() is None, demo.err
        found = re.search(rf"The dashboard is open, served by demo-a\S*: {login}", " ".join(demo.out.split()))
        return None if found is None else (found[1], found[2], found[3])

    found = eventually(find, timeout=240, message=lambda: demo.out + demo.err)
    assert found is not None
    return found


@pytest.mark.parametrize("server_database", ["mysql"], indirect=True)
def test_a_killed_workers_task_is_finished_the_dashboard_has_something_on_each_page_and_a_stop_leaves_nothing_behind(
    tmp_path: Path, server_database: str, clip: str
) -> None:
    options = ("--open", "--tasks", "2", "--input", clip, "--database", server_database)
    with running_demo(tmp_path, *options) as demo, Client(server_database) as client, ExitStack() as afterwards:
        address, *login = login_of(demo)
        browser = afterwards.enter_context(logged_in(address, *login))
        assert "<h1>Overview" in browser.get("/").text
        eventually(lambda: f"The dashboard: {address}" in demo.out, timeout=240)  # again, after the summary
        eventually(lambda: "Tasks → a running one → Show the stack" in demo.out)  # it is written line by line
        first = client.tasks.list(limit=100)[-2:]
        [killed] = [task for task in first if client.tasks.attempts(task.id)]
        [attempt] = client.tasks.attempts(killed.id)
        assert (killed.status, attempt.cause) == ("done", "killed by SIGKILL")
        assert killed.process_id != attempt.process_id
        for task in first:
            result = json.loads(task.result or "")
            [file] = demo.temporary.glob(f"*/media/{result['output']}")
            assert file.stat().st_size == result["size"]

        def seen() -> set[str]:
            tasks = client.tasks.list(limit=100)
            damaged = {task.id: " of the damaged file" for task in tasks if "damaged.mp4" in str(task.error)}
            return {f"{task.status} {task.name}{damaged.get(task.id, '')}" for task in tasks}

        eventually(lambda: seen() >= SEEN, timeout=240)
        assert "-poster" in browser.get("/schedules").text
        assert "demo-b" in browser.get("/nodes").text
        assert "dead" in browser.get("/alerts?shown=all").text
        demo.process.terminate()
        assert demo.process.wait(60) == 0, demo.err
        assert "The nodes have stopped" in demo.out
        assert demo.processes() == []
        assert list(demo.temporary.iterdir()) == []
        assert client.users.list() == []
        tasks = client.tasks.list(limit=100)
        assert all(task.finished for task in tasks)
        assert [task for task in tasks if task.status == "canceled" and task.error == "the demo has ended"]


def test_after_a_demo_that_did_not_succeed_the_logs_stay(tmp_path: Path, clip: str) -> None:
    options = ("--open", "--json", "--tasks", "2", "--input", clip, "--timeout", "1s")
    with running_demo(tmp_path, *options) as demo:
        eventually(lambda: demo.out.rstrip().endswith("}"), timeout=60, message=lambda: demo.err)
        ending = json.loads(demo.out)
        assert (ending["well"], len(ending["tasks"])) == (False, 2)
        with logged_in(**ending["dashboard"]) as browser:
            assert "<h1>Overview" in browser.get("/").text
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(60) == 1
        assert "the demo did not end as expected" in demo.err
        assert demo.processes() == []
        [folder] = demo.temporary.iterdir()
        assert str(folder) in demo.err
        assert (folder / "demo-a.log").stat().st_size > 0


def test_a_killed_demo_leaves_no_process_behind(tmp_path: Path, clip: str) -> None:
    with running_demo(tmp_path, "--tasks", "2", "--input", clip) as demo:
        eventually(lambda: len(demo.processes()) >= 5 or demo.process.poll() is not None, timeout=120)
        assert demo.process.poll() is None
        demo.process.kill()
        eventually(lambda: demo.processes() == [], timeout=60)


def test_what_prevents_a_demo_is_an_error_with_its_remedy_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")  # as if not installed
    (tmp_path / "letter.txt").write_text("Dear reader,\n" * 100)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for number, (options, status, words) in enumerate(
            (
                (("--open", "--port", port), 1, (f"port {port} is taken", "another one with --port")),
                (("--port", "8080"), 2, ("add --open",)),
                (("--open",), 1, ("this needs jinja2: pip install 'peerd[dashboard]'",)),
                (("--input", str(tmp_path / "letter.txt")), 1, ("letter.txt",)),
            )
        ):
            folder = tmp_path / str(number)
            folder.mkdir()
            without = {"PYTHONPATH": str(tmp_path)} if options == ("--open",) else {}
            with running_demo(folder, *options, variables=without) as demo:
                assert demo.process.wait(60) == status, options
            assert [word for word in (*words, "") if word not in demo.err] == [], demo.err
            assert "Traceback" not in demo.err


def test_the_packages_that_are_looked_for_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    required = {re.split(r"[<>=]", one)[0] for one in (*extras["dashboard"], *extras["web"])} - {"peerd[web]"}
    assert set(PACKAGES.values()) == required


def test_the_command_that_opens_the_dashboard_is_the_one_that_was_used(tmp_path: Path) -> None:
    program = tmp_path / "peerd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert open_command({"PATH": str(tmp_path)}, str(program)) == "peerd demo --open"
    assert open_command({"PATH": "/nowhere"}, str(program)) == f"{program} demo --open"
    assert open_command({}, "/somewhere/peerd/__main__.py") == f"{sys.executable} -m peerd demo --open"
    assert open_command({"PEERD_DEMO_RUN_BY": "make"}, str(program)) == "make demo ARGUMENTS=--open"
    assert "export PEERD_DEMO_RUN_BY := make" in (ROOT / "Makefile").read_text()
