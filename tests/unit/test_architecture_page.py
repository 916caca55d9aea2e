"""docs/architecture.md names the tests that check each invariant: they must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
INVARIANTS = re.findall(r"^\| \*\*(\d)\. .*?\*\* \| (.*) \|$", PAGE, re.MULTILINE)
DEFINED = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
}


def test_every_invariant_is_on_the_page() -> None:
    assert [number for number, _ in INVARIANTS] == list("123456")


@pytest.mark.parametrize(("number", "tests"), INVARIANTS)
def test_the_tests_that_check_an_invariant_exist(number: str, tests: str) -> None:
    named = re.findall(r"`(test_\w+)`", tests)
    assert len(named) >= 5
    assert set(named) <= DEFINED


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))))
def test_the_files_that_the_tour_names_exist(path: str) -> None:
    assert (ROOT / "src" / "peerd" / path).is_file()
