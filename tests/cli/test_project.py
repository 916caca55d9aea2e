from __future__ import annotations

from pathlib import Path

import pytest

from peerd.cli.init import EXAMPLE
from tests.cli.conftest import Peerd


def test_a_new_project_is_right_as_it_stands(peerd: Peerd, tmp_path: Path) -> None:
    written = peerd("init").out
    assert (tmp_path / "jobs.py").read_text() == EXAMPLE
    assert "written peerd.toml" in written
    answer = peerd("check", "--json").json
    assert answer["ok"], answer
    assert {"what": "worker hello", "words": "takes from hello; handles greet"} in answer["right"]


def test_nothing_that_is_there_is_overwritten(peerd: Peerd, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("mine")
    answer = peerd("init", status=1)
    assert "jobs.py is there already; nothing was written" in answer.err
    assert not (tmp_path / "peerd.toml").exists()
    peerd("init", "other/folder")
    assert (tmp_path / "other/folder/jobs.py").exists()


def test_every_mistake_is_named_with_its_line_and_remedy(peerd: Peerd, project: Path) -> None:
    (project / "peerd.toml").write_text("[workers.video]\ntasks = 'jobs:video'\ncuont = 2\nprocesses = 0\n")
    answer = peerd("check", status=1)
    assert "peerd.toml:3: workers.video.cuont: unknown key" in answer.out
    assert "peerd.toml:4: workers.video.processes" in answer.out
    problems = peerd("check", "--json", status=1).json["problems"]
    assert [problem["line"] for problem in problems] == [3, 4]
    error = peerd("tasks", "list", "--json", status=1).error
    assert [problem["line"] for problem in error["problems"]] == [3, 4]


def test_the_apps_of_web_sections_are_imported_too(peerd: Peerd, project: Path) -> None:
    (project / "site_app.py").write_text("async def app(scope, receive, send): ...\ntext = 7\n")
    section = "[web.{0}]\nbind = ':{1}'\napp = 'site_app:{0}'\n"
    with (project / "peerd.toml").open("a") as file:
        file.write("\n" + section.format("app", 8081) + section.format("text", 8082))
    answer = peerd("check", "--json", status=1).json
    assert {"what": "web app", "words": "serves site_app:app"} in answer["right"]
    [problem] = answer["problems"]
    assert (problem["key"], problem["message"]) == (
        "web.text.app",
        "site_app:text: is a int, and no ASGI app: it cannot be called",
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "jobs has no video"),
        ("video = 7", "is a int, not a Queue"),
        ("import missing_module", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(7)", "ended the process with status 7"),
        ("import os; os._exit(9)", "ended the process with status 9"),
        ("import sys; print('noise'); sys.stderr.write('noise'); video = 1", "not a Queue"),
    ],
)
def test_code_that_cannot_be_used_is_named_at_its_worker(peerd: Peerd, project: Path, code: str, said: str) -> None:
    (project / "peerd.toml").write_text("[workers.video]\nprocesses = 2\ntasks = 'jobs:video'\n")
    (project / "jobs.py").write_text(code + "\n")
    answer = peerd("check", "--json", status=1).json
    [problem] = answer["problems"]
    assert (problem["line"], problem["key"]) == (3, "workers.video.tasks")
    assert said in problem["message"]


def test_a_worker_that_is_not_enabled_is_not_imported(peerd: Peerd, project: Path) -> None:
    (project / "peerd.toml").write_text("[workers.video]\nenabled = false\ntasks = 'missing:video'\n")
    assert peerd("check", "--json").json["ok"]


def test_a_server_without_tables_is_a_problem_until_it_is_migrated(
    peerd: Peerd, project: Path, server_database: str
) -> None:
    assert "run peerd migrate" in peerd("check", "--database", server_database, status=1).out
    first = peerd("migrate", "--database", server_database, "--json").json
    assert (first["before"], first["after"], first["changed"]) == (None, first["newest"], True)
    again = peerd("migrate", "--database", server_database).lines
    assert again == [f"the tables are at revision {first['newest']} already"]
    assert "all is well" in peerd("check", "--database", server_database).out


def test_a_configuration_that_is_not_there_is_said_so(peerd: Peerd) -> None:
    assert "run 'peerd init' to write one" in peerd("check", status=1).out
    assert "run 'peerd init' to write one" in peerd("up", status=1).err
