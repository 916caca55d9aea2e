"""docs/egg-parity.md names the tests that show each behaviour: they must exist at the given path."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "egg-parity.md").read_text()
TABLES = PAGE[PAGE.index("\n## Master and workers\n") :]
BEHAVIOURS = re.findall(r"^\| ((?!what |---).*?) \| (.*?) \| (.*) \|$", TABLES, re.MULTILINE)
AREAS = ["Master and workers", "Agent", "Messenger", "Startup and failure", "Stop", "Reload", "Options"]
AREAS += ["Graceful: exceptions under way", "Schedules", "Scripts"]
OF_REAL_PROCESSES = (
    "supervision/",
    "cluster/",
    "cli/test_node.py",
    "cli/test_background.py",
    "cli/test_watch_files.py",
)
IN_ONE_PROCESS = "◦"


@cache
def defined(file: str) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", (ROOT / "tests" / file).read_text(), re.MULTILINE))


def named(tests: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)::(test_\w+)`", tests)


def test_every_area_is_on_the_page() -> None:
    assert re.findall(r"^## (.*)$", TABLES, re.MULTILINE) == AREAS
    rows = [line for line in TABLES.splitlines() if line.startswith("| ") and not line.startswith("| what ")]
    assert len(BEHAVIOURS) == len(rows), "a row has another form"


@pytest.mark.parametrize(("behaviour", "tests"), [(behaviour, tests) for behaviour, _, tests in BEHAVIOURS])
def test_the_tests_that_show_a_behaviour_exist(behaviour: str, tests: str) -> None:
    found = named(tests)
    assert len(found) == tests.count("`") / 2 > 0
    assert [(file, name) for file, name in found if name not in defined(file)] == []


@pytest.mark.parametrize(("peerd", "tests"), [(peerd, tests) for _, peerd, tests in BEHAVIOURS])
def test_a_behaviour_is_shown_by_real_processes_unless_the_page_names_another_way(peerd: str, tests: str) -> None:
    shown = [file for file, _ in named(tests) if file.startswith(OF_REAL_PROCESSES)]
    assert bool(shown) is not peerd.endswith(IN_ONE_PROCESS)
