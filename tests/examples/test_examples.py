"""Each example is a project: its node starts, its run.py succeeds, its node stops."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from peerd.supervision.control import NotRunning, status
from peerd.testing import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("example", sorted(path.parent.name for path in EXAMPLES.glob("*/run.py")))
def test_an_example_does_what_its_run_says(example: str, tmp_path: Path) -> None:
    project = tmp_path / example
    shutil.copytree(EXAMPLES / example, project)
    log = tmp_path / "node.log"
    with log.open("wb") as out:
        node = subprocess.Popen(
            [sys.executable, "-m", "peerd", "up"], cwd=project, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        eventually(lambda: _state(project) == "running" or node.poll() is not None, timeout=90)
        assert node.poll() is None, log.read_text()
        run = subprocess.run(
            [sys.executable, "run.py"], cwd=project, capture_output=True, text=True, timeout=120, check=False
        )
        assert run.returncode == 0, f"{run.stderr}\n{log.read_text()}"
    finally:
        node.terminate()
        assert node.wait(60) == 0, log.read_text()


def _state(project: Path) -> str:
    for folder in project.glob(".peerd/*"):
        try:
            return str(status(folder)["state"])
        except (NotRunning, OSError):
            continue
    return "not there yet"
