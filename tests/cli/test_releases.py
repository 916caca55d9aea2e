"""A project whose releases are folders, and a symbolic link `current` that is switched from one to the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd import Client
from peerd.config.loading import load

PEERD = [sys.executable, "-m", "peerd"]
TOML = """\
[node]
name = "w1"
[database]
url = "sqlite:///../../peerd.sqlite"
[workers.hello]
tasks = "jobs:hello"
"""
CODE = """\
import os
from peerd import Queue
hello = Queue('hello')
@hello.task
def which() -> list[object]:
    return [{release}, os.path.exists('only-in-{release}'), os.getcwd()]
"""


class Releases:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link = folder / "current"
        for release in (1, 2):
            made = folder / "releases" / str(release)
            made.mkdir(parents=True)
            (made / "peerd.toml").write_text(TOML)
            (made / "jobs.py").write_text(CODE.format(release=release))
            (made / f"only-in-{release}").touch()
        self.switch_to(1)

    def switch_to(self, release: int) -> None:
        new = self.folder / "new"
        new.symlink_to(self.folder / "releases" / str(release))
        new.replace(self.link)

    def peerd(self, *words: str, folder: str = "current", status: int = 0, config: str | None = None) -> str:
        """Run a command as a shell does that has entered a folder by its name."""
        shell = ["sh", "-c", 'cd "$0" && exec "$@"', folder, *PEERD, *words]
        environment = {**os.environ, "PWD": str(self.folder)} | ({} if config is None else {"PEERD_CONFIG": config})
        ran = subprocess.run(
            shell, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert ran.returncode == status, (words, ran)
        return ran.stdout + ran.stderr

    def run_task(self) -> object:
        with Client(f"sqlite:///{self.folder}/peerd.sqlite") as client:
            return client.enqueue("hello", name="which").result(timeout=60)


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Releases]:
    made = Releases(tmp_path)
    yield made
    if (tmp_path / ".peerd" / "current" / "w1" / "control.sock").exists():
        made.peerd("stop")


def test_after_the_link_was_switched_reload_runs_new_code_and_the_node_is_found_until_its_stop(
    releases: Releases,
) -> None:
    releases.peerd("start")
    first, second = (str(releases.folder / "releases" / release) for release in "12")
    assert releases.run_task() == [1, True, first]
    releases.switch_to(2)
    assert "w1" in releases.peerd("status")
    releases.peerd("reload", "hello")
    assert releases.run_task() == [2, True, second]
    shutil.rmtree(first)
    releases.peerd("reload", "hello", folder="/", config=str(releases.link / "peerd.toml"))
    assert releases.run_task() == [2, True, second]
    releases.peerd("status", "--config", "current/peerd.toml", folder=".")
    releases.peerd("stop")
    assert "no node is running" in releases.peerd("stop", status=1)


def test_a_unit_of_systemd_names_the_link(releases: Releases) -> None:
    unit = releases.peerd("systemd", "--as", "nobody")
    assert f"WorkingDirectory={releases.link}\n" in unit
    assert unit.count(f"--config {releases.link}/peerd.toml") == 2
    assert "releases/" not in unit


def test_a_unit_of_systemd_names_an_environment_in_the_release_by_the_link(releases: Releases) -> None:
    programs = releases.folder / "releases" / "1" / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs.parent / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PWD": str(releases.link)}
    command = [str(programs / "python"), "-m", "peerd", "systemd", "--as", "nobody"]

    def unit() -> str:
        return subprocess.run(
            command, cwd=releases.link, env=environment, capture_output=True, text=True, check=True
        ).stdout

    module = "-m peerd up"  # not of a package, which would find a project's queue.py before the standard library's
    assert f"ExecStart={releases.link}/.venv/bin/python {module}" in unit()
    (programs / "peerd").touch()
    assert f"ExecStart={releases.link}/.venv/bin/peerd up" in unit()


def test_a_name_that_the_shell_gives_counts_only_for_the_folder_in_which_the_process_is(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases.folder.joinpath("elsewhere").symlink_to(releases.folder / "releases" / "2")
    real = releases.folder / "releases" / "1"
    monkeypatch.chdir(real)
    cases = {str(releases.link): releases.link, str(releases.folder / "elsewhere"): real, "": real, "current": real}
    for named, folder in cases.items():
        settings = load(environment={"PWD": named})
        assert settings.project_directory == folder, named
    shared = releases.folder / ".peerd" / "current" / "w1"
    assert load(environment={"PWD": str(releases.link)}).node.run_directory == shared
    assert load(environment={"PWD": str(real)}).node.run_directory == real / ".peerd" / "w1"


def test_a_database_file_in_a_release_is_warned_of(releases: Releases) -> None:
    file = releases.link / "peerd.toml"
    file.write_text(TOML.replace("../../", ""))
    assert "each release has another one" in releases.peerd("check")
    assert "each release has another one" not in releases.peerd("check", folder="releases/1")
