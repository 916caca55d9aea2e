"""The cache of each worker is refreshed by push, by pull and by schedule; its workers say so themselves."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peerd import Client
from peerd.testing import eventually
from tests.examples.project import ExampleProject

PERIODS = {'interval = "10s"': 'interval = "1s"', 'interval = "10m"': 'interval = "3s"'}
WORKERS = ["rates-1", "rates-2", "rates-3"]
WAYS = ["push", "pull", "schedule"]


@pytest.fixture
def project(tmp_path: Path) -> ExampleProject:
    with socket.create_server(("127.0.0.1", 0)) as free:
        source = f"127.0.0.1:{free.getsockname()[1]}"
    return ExampleProject("cache_refresh", tmp_path, PERIODS, SOURCE=source, PEERD_LOGGING_FORMAT="json")


@contextmanager
def source(project: ExampleProject) -> Iterator[subprocess.Popen[bytes]]:
    before = project.output().count("rates are served")
    with project.program("source.py") as program:
        eventually(lambda: project.output().count("rates are served") > before or program.poll() is not None)
        assert program.poll() is None, project.output()
        yield program


def refreshed(project: ExampleProject) -> list[tuple[str, str]]:
    """By what each worker has said that it was refreshed, in order."""
    lines = [json.loads(line) for line in project.output().splitlines() if line.startswith("{") and line.endswith("}")]
    return [(line["by"], line["slot"]) for line in lines if line.get("event") == "cache refreshed"]


def ticked_in(project: ExampleProject) -> set[str | None]:
    """The workers in which the clock has run the safety net, not a hand."""
    with Client(f"sqlite:///{project.folder}/peerd.sqlite") as client:
        return {run.slot for run in client.schedules.runs("refresh") if (run.origin, run.status) == ("clock", "done")}


@pytest.mark.slow
def test_each_workers_cache_is_refreshed_in_the_three_ways_and_by_push_again_when_the_source_comes_back(
    project: ExampleProject,
) -> None:
    with source(project) as first, project.node():
        shown = [line.split() for line in project.run().splitlines()]
        assert [(words[0], words[5]) for words in shown] == [(f"{slot}:", f"{by},") for by in WAYS for slot in WORKERS]
        eventually(lambda: ticked_in(project) == set(WORKERS), message=project.output)
        assert set(refreshed(project)) >= {(by, slot) for by in WAYS for slot in WORKERS}

        first.terminate()
        first.wait(30)
        eventually(lambda: "ConnectionRefusedError" in project.output(), message=project.output)
        before = len(refreshed(project))
        with source(project):
            pushed = {("push", slot) for slot in WORKERS}
            eventually(lambda: set(refreshed(project)[before:]) >= pushed, timeout=60, message=project.output)
