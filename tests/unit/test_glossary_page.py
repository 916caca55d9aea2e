"""docs/glossary.md names modules and classes: they must exist, and a class name must mean one class."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "peerd").rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for path in SOURCES}
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]


@cache
def classes() -> Counter[str]:
    """How many classes have a name."""
    trees = (ast.parse(path.read_text()) for path in SOURCES)
    return Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


@pytest.mark.parametrize(("term", "names"), [(term, names) for term, _, names in ROWS])
def test_the_modules_and_classes_of_a_term_exist(term: str, names: str) -> None:
    named = re.findall(r"`([\w.]+)`", names)
    assert named or names == "–"
    unknown = [
        name for name in named if name not in classes() and f"peerd.{name.removeprefix('peerd.')}" not in MODULES
    ]
    assert not unknown, term


def test_a_term_is_defined_once_and_in_one_sentence_or_two() -> None:
    assert [term for term, count in Counter(term for term, _, _ in ROWS).items() if count > 1] == []
    assert [term for term, meaning, _ in ROWS if not meaning.endswith(".") or len(meaning) > 200] == []


def test_each_class_name_occurs_once() -> None:
    assert [name for name, count in classes().items() if count > 1] == []
