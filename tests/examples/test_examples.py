"""The examples of a single worker each, as one project: its node starts, each run.py succeeds, the node stops."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.examples.project import EXAMPLES, ExampleProject

TESTED_ALONE = {"archive", "cache_refresh", "spider", "web_and_tasks"}


@pytest.mark.slow
def test_each_example_does_what_its_run_says(tmp_path: Path) -> None:
    first = "whole_rows"  # it looks at all tasks
    project = ExampleProject(first, tmp_path)
    others = sorted({path.parent.name for path in EXAMPLES.glob("*/run.py")} - TESTED_ALONE - {first})
    for name in others:
        for file in (EXAMPLES / name).glob("*.py"):
            shutil.copy(file, project.folder / (f"run_{name}.py" if file.name == "run.py" else file.name))
        with (project.folder / "peerd.toml").open("a") as config:
            config.write((EXAMPLES / name / "peerd.toml").read_text())
    with project.node():
        for program in ("run.py", *(f"run_{name}.py" for name in others)):
            project.run(program=program)


def test_the_list_of_examples_names_each_of_them() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    folders = [path.parent.name for path in EXAMPLES.glob("*/run.py")]
    assert [folder for folder in folders if f"[{folder}]({folder})" not in listed] == []
