"""A project's files may have any names: those of the standard library too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import WORKER, Cluster

pytestmark = pytest.mark.slow

SHADOWED = ("queue", "logging", "types", "json", "socket", "select", "enum", "signal", "random", "uuid", "asyncio")
"""All of them are used by every process, and one is a package."""
BROKEN = "raise RuntimeError(f'{__name__} of the project was imported in place of the standard library')\n"
OWN = """
from peerd import Context, Queue

from helpers.words import greeting

own = Queue("own")


@own.task
async def greet(ctx: Context) -> str:
    import queue, logging, types, json

    return f"{greeting} {queue.Queue.__module__} {logging.Logger.__module__} {types.FunctionType.__name__}"


@own.task(process=True)
def greet_apart(ctx: Context) -> str:
    import queue

    return f"{greeting} {queue.Queue.__module__}"
"""


@pytest.fixture
def shadowing(cluster: Cluster) -> Cluster:
    """A cluster whose project has files with the standard library's names, a module and a package of its own."""
    for name in SHADOWED:
        (cluster.folder / f"{name}.py").write_text(BROKEN)
    (cluster.folder / "helpers").mkdir()
    (cluster.folder / "helpers/__init__.py").touch()
    (cluster.folder / "helpers/words.py").write_text("greeting = 'hello'\n")
    (cluster.folder / "own.py").write_text(OWN)
    cluster.command = [str(Path(sys.executable).parent / "peerd")]
    return cluster


def run(cluster: Cluster, name: str) -> str:
    """The result of a task."""
    return str(json.loads(cluster.done(cluster.client.enqueue("own", name=name)).result or ""))


def test_a_project_may_have_files_named_like_the_standard_library(shadowing: Cluster) -> None:
    cluster = shadowing
    node = cluster.node("one", workers={"own": {**WORKER, "tasks": "own:own"}}).up()
    log_text = "hello queue logging"
    assert run(cluster, "greet") == f"{log_text} function"
    assert run(cluster, "greet_apart") == "hello queue"
    (cluster.folder / "helpers/words.py").write_text("greeting = 'good bye'\n")
    node.reload("own")
    assert run(cluster, "greet").startswith("good bye queue")


def test_the_command_line_works_beside_files_named_like_the_standard_library(shadowing: Cluster) -> None:
    def check(*command: str) -> tuple[int, str]:
        answer = subprocess.run([*command, "check"], cwd=shadowing.folder, capture_output=True, text=True, check=False)
        return answer.returncode, " ".join((answer.stdout + answer.stderr).split())

    config = shadowing.folder / "peerd.toml"
    config.write_text("[workers.own]\ntasks = 'queue:own'\n")
    status, text = check(*shadowing.command)
    assert (status, "queue is a module of the standard library" in text) == (1, True), text
    config.write_text(f"[database]\nurl = '{shadowing.url}'\n[workers.own]\ntasks = 'own:own'\n")
    for name in ("types", "enum"):  # `python -m` itself, of any module, imports these
        (shadowing.folder / f"{name}.py").unlink()
    for command in (shadowing.command, [sys.executable, "-m", "peerd"]):
        status, text = check(*command)
        assert (status, "handles greet, greet_apart" in text) == (0, True), text
