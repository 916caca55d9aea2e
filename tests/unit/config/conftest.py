"""`project`: the folder that the test is in. `write`: write the project's peerd.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from peerd.config import check
from peerd.config.loading import Check

EMPTY: Mapping[str, str] = {}
Write = Callable[[str], Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(project: Path) -> Write:
    def to_file(text: str) -> Path:
        path = project / "peerd.toml"
        path.write_text(dedent(text).lstrip("\n"))
        return path

    return to_file


def checked(path: Path, environment: Mapping[str, str] = EMPTY) -> Check:
    return check(path, environment)


def problems(path: Path, environment: Mapping[str, str] = EMPTY) -> list[str]:
    return [str(problem) for problem in checked(path, environment).problems]
