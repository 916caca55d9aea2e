"""The page on reliability names the rules that there are, all of them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.checker import RULE_NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
TABLE = PAGE[PAGE.index("## The rules by name") : PAGE.index("## What was measured")]


def named(column: int) -> set[str]:
    """What a column of the table names."""
    rows = [line.split("|") for line in TABLE.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[column])}


def test_the_rules_of_the_checker_are_named() -> None:
    assert named(2) == set(RULE_NAMES)


def test_the_rules_of_the_simulation_are_named() -> None:
    sources = (ROOT / "tests" / "simulation").glob("*.py")
    rules = {rule for source in sources for rule in re.findall(r'InvariantViolation\(\s*"([^"]+)"', source.read_text())}
    assert named(3) == rules
