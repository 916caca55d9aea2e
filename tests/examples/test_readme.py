"""The README's first task, as a newcomer follows it: what it shows is taken from its text."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from peerd.testing import eventually

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """The fenced block of the README that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    [found] = [one for one in blocks if containing in one]
    return str(found)


def commands(containing: str) -> list[list[str]]:
    """The peerd commands of a shell block."""
    lines = [line.split("#")[0] for line in block("sh", containing).splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("peerd ")]


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_first_task_of_the_readme_runs_as_it_says(tmp_path: Path) -> None:
    [init, up] = commands("peerd init")
    run(tmp_path, "-m", *init)
    shown = block("python", "async def greet").strip()
    written = (tmp_path / "jobs.py").read_text()
    assert shown.split("\n\n\n")[0].replace("import asyncio\n\n", "") in written
    with (tmp_path / "node.log").open("wb") as log:
        node = subprocess.Popen([sys.executable, "-m", *up], cwd=tmp_path, stdout=log, stderr=log)
    try:
        eventually(lambda: "ready" in (tmp_path / "node.log").read_text(), timeout=90)
        [enqueue, watch, listing, show] = commands("peerd enqueue")
        run(tmp_path, "-m", *enqueue)
        run(tmp_path, "-m", *watch)
        assert "done" in run(tmp_path, "-m", *listing)
        assert "Hello, you!" in run(tmp_path, "-m", *show)
        (tmp_path / "client.py").write_text(block("python", "Client.from_config()"))
        assert "Hello, you!" in run(tmp_path, "client.py")
        with sqlite3.connect(tmp_path / "peerd.sqlite", timeout=60, isolation_level=None) as database:
            number = database.execute(block("sql", "INSERT INTO tasks")).lastrowid
            result = "SELECT result FROM tasks WHERE id = ? AND status = 'done'"
            [text] = eventually(lambda: database.execute(result, (number,)).fetchone(), timeout=60)
        assert json.loads(text) == {"greeting": "Hello, you!"}
    finally:
        node.terminate()
        assert node.wait(60) == 0
