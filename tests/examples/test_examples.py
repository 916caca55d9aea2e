"""Each example is a project: its node starts, its run.py succeeds, its node stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.project import EXAMPLES, ExampleProject

TESTED_ALONE = {"archive", "cache_refresh", "spider", "web_and_tasks"}


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted({path.parent.name for path in EXAMPLES.glob("*/run.py")} - TESTED_ALONE))
def test_an_example_does_what_its_run_says(example: str, tmp_path: Path) -> None:
    project = ExampleProject(example, tmp_path)
    with project.node():
        project.run()


def test_the_list_of_examples_names_each_of_them() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    folders = [path.parent.name for path in EXAMPLES.glob("*/run.py")]
    assert [folder for folder in folders if f"[{folder}]({folder})" not in listed] == []
