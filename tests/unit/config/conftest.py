"""`project`: the folder that the test is in. `write`: write the project's peerd.toml."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.config.helpers import Write


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
