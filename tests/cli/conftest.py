from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from typer.testing import CliRunner

from peerd.cli.app import app
from peerd.cli.command import SERVER_VARIABLES
from peerd.config.source import CONFIG_VARIABLE, setting_variables
from peerd.operate.client import Client
from tests.support.summary import note_database
from tests.unit.operate.claiming_process import ClaimingProcess


@dataclass(frozen=True)
class Answer:
    """The output of a command, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.out.splitlines()]


class Peerd(Protocol):
    def __call__(self, *words: str, stdin: str | None = None, status: int | None = 0) -> Answer: ...


@pytest.fixture
def peerd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peerd:
    """`peerd …` in a new folder; another exit status than the expected one fails the test; None expects any."""
    for name in {*setting_variables(), CONFIG_VARIABLE, *SERVER_VARIABLES} & set(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*words: str, stdin: str | None = None, status: int | None = 0) -> Answer:
        result = CliRunner().invoke(app, list(words), input=stdin, prog_name="peerd")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        answer = Answer(result.exit_code, result.stdout, result.stderr)
        assert status in (None, answer.status), (words, answer)
        return answer

    return call


@pytest.fixture
def project(peerd: Peerd, tmp_path: Path) -> Path:
    """A folder with a peerd.toml without workers, and the embedded database."""
    (tmp_path / "peerd.toml").write_text('[node]\nname = "here"\n')
    return tmp_path


@pytest.fixture
def client(project: Path, migrated_file: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    note_database(request.node, "sqlite")
    with Client(f"sqlite:///{shutil.copy(migrated_file, project / 'peerd.sqlite')}") as client:
        yield client


@pytest.fixture
def holder(client: Client) -> ClaimingProcess:
    return ClaimingProcess(client.database)
