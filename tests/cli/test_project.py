"""`peerd init`, `check` and `migrate`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from peerd.cli.project.init import EXAMPLE
from peerd.operate.client import Client
from tests.cli.conftest import Peerd

NOBODY = 65534


def test_a_new_project_has_no_problems(peerd: Peerd, tmp_path: Path) -> None:
    assert "run 'peerd init' to write one" in peerd("check", status=1).out
    assert "run 'peerd init' to write one" in peerd("up", status=1).err
    written = peerd("init").out
    assert (tmp_path / "jobs.py").read_text() == EXAMPLE
    assert "written peerd.toml" in written
    ignored = (tmp_path / ".gitignore").read_text().splitlines()
    assert {".peerd/", "*.sqlite", "*.secret", "*.password"} <= set(ignored)
    answer = peerd("check", "--json").json
    assert answer["ok"], answer
    assert {"what": "worker hello", "words": "takes from hello; handles greet"} in answer["right"]


def test_no_existing_file_is_overwritten(peerd: Peerd, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("mine")
    answer = peerd("init", status=1)
    assert "jobs.py exists already; nothing was written" in answer.err
    assert not (tmp_path / "peerd.toml").exists()
    peerd("init", "other/folder")
    assert (tmp_path / "other/folder/jobs.py").exists()
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / ".gitignore").write_text("mine")
    peerd("init", "third")
    assert (tmp_path / "third" / ".gitignore").read_text() == "mine"


UNUSABLE = {
    "": "unusable_0 has no video",
    "video = 7": "is a int, not a Queue",
    "import missing_module": "ModuleNotFoundError",
    "def broken(:": "SyntaxError",
    "raise SystemExit(7)": "ended the process with status 7",
    "import os; os._exit(9)": "ended the process with status 9",
    "import sys; print('noise'); sys.stderr.write('noise'); video = 1": "not a Queue",
}


@pytest.mark.slow
def test_code_that_cannot_be_used_is_reported_at_its_worker(peerd: Peerd, project: Path) -> None:
    sections = []
    for number, code in enumerate(UNUSABLE):
        (project / f"unusable_{number}.py").write_text(code + "\n")
        sections.append(f"[workers.video{number}]\nprocesses = 2\ntasks = 'unusable_{number}:video'\n")
    (project / "peerd.toml").write_text("".join(sections))
    problems = peerd("check", "--json", status=1).json["problems"]
    assert [(one["line"], one["key"]) for one in problems] == [
        (3 * number + 3, f"workers.video{number}.tasks") for number in range(len(UNUSABLE))
    ]
    for problem, words in zip(problems, UNUSABLE.values(), strict=True):
        assert words in problem["message"]


def test_a_server_without_tables_is_a_problem_until_it_is_migrated(
    peerd: Peerd, project: Path, server_database: str
) -> None:
    assert "run peerd migrate" in peerd("check", "--database", server_database, status=1).out
    first = peerd("migrate", "--database", server_database, "--json").json
    assert (first["before"], first["after"], first["changed"]) == (None, first["newest"], True)
    again = peerd("migrate", "--database", server_database).lines
    assert again == [f"the tables are at revision {first['newest']} already"]
    assert "no problems" in peerd("check", "--database", server_database).out


EVERY_KIND_OF_MISTAKE = """\
[node]
cuont = 2
run_directory = "jobs.py/run"
[manager]
inactive_after = "1s"
[workers.gone]
tasks = "leaves:queue"
[workers.video]
tasks = "missing:video"
[workers.mail]
tasks = "jobs:mail"
processes = 0
[web.site]
app = "jobs:mail"
bind = ":8081"
[schedules.nightly]
run = "jobs:nightly"
interval = "1h"
[schedules.number]
run = "jobs:NUMBER"
interval = "1h"
[schedules.letters]
queue = "mail"
task = "sned"
interval = "1h"
[logging]
file = "jobs.py/peerd.log"
"""
JOBS = """\
from peerd import Queue
mail = Queue("mail")
NUMBER = 7

@mail.task
def send(): ...
"""


def test_every_mistake_is_reported_with_its_line_and_remedy(peerd: Peerd, project: Path) -> None:
    (project / "peerd.toml").write_text(EVERY_KIND_OF_MISTAKE)
    (project / "jobs.py").write_text(JOBS)
    (project / "leaves.py").write_text("import sys\nsys.exit(5)\n")
    problems = peerd("check", "--json", status=1).json["problems"]
    found = {problem["key"]: (problem["line"], problem["message"]) for problem in problems}
    for line, key, words in (
        (2, "node.cuont", "unknown key"),
        (3, "node.run_directory", "jobs.py: not a directory"),
        (5, "manager.inactive_after", "no longer than a heartbeat"),
        (7, "workers.gone.tasks", "ended the process with status 5"),
        (9, "workers.video.tasks", "No module named 'missing'"),
        (12, "workers.mail.processes", "must be at least 1"),
        (14, "web.site.app", "not an ASGI app"),
        (17, "schedules.nightly.run", "jobs has no nightly"),
        (20, "schedules.number.run", "jobs:NUMBER is a int, not a function"),
        (24, "schedules.letters.task", "queue mail has no handler 'sned'; there are: send"),
        (27, "logging.file", "jobs.py: not a directory"),
    ):
        at, message = found.pop(key)
        assert (at, words in message) == (line, True), (key, at, message)
    assert found == {}
    assert [problem["line"] for problem in problems] == sorted(problem["line"] for problem in problems)
    (project / "peerd.toml").write_text("[workers.video]\ntasks = 'jobs:video'\ncuont = 2\nprocesses = 0\n")
    shown = peerd("check", status=1).out
    assert "peerd.toml:3: workers.video.cuont: unknown key" in shown
    assert "peerd.toml:4: workers.video.processes" in shown
    error = peerd("tasks", "list", "--json", status=1).error
    assert [problem["line"] for problem in error["problems"]] == [3, 4]


RIGHT = """\
[workers.mail]
tasks = "jobs:mail"
[workers.resting]
enabled = false
tasks = "missing:video"
[gateway.near]
[gateway.far]
bind = ":11301"
protocols = "json"
token = "a-token-of-some-length"
[gateway.off]
enabled = false
bind = "unix:off"
[web.site]
bind = ":8081"
app = "jobs:site"
[schedules.letters]
queue = "mial"
interval = "1h"
"""


def test_what_is_right_is_described_and_a_queue_that_no_worker_here_serves_is_a_warning(
    peerd: Peerd, project: Path
) -> None:
    (project / "jobs.py").write_text(f"{JOBS}\nasync def site(scope, receive, send): ...\n")
    (project / "peerd.toml").write_text(RIGHT)
    answer = peerd("check", "--json").json
    right = {one["what"]: one["words"] for one in answer["right"]}
    assert (
        right.items()
        >= {
            "gateway near": "serves beanstalk and json on 127.0.0.1:11300",
            "gateway far": "serves json on :11301, with a token",
            "web site": "serves jobs:site",
        }.items()
    )
    assert not right.keys() & {"gateway off", "worker resting"}
    warnings = {one["key"]: one for one in answer["warnings"]}
    assert list(warnings) == ["gateway.far", "gateway.far.token", "schedules.letters.queue"]
    warning = warnings["schedules.letters.queue"]
    assert warning["line"] == 18
    assert warning["message"] == (
        "no worker of this configuration serves the queue mial; its tasks wait for another node"
    )
    assert warning["remedy"] == "did you mean 'mail'?"
    shown = peerd("check")
    assert "no problems, 3 warnings" in shown.lines[-1]
    assert "a-token-of-some-length" not in shown.out


def test_a_folder_in_which_nothing_can_be_written_is_a_problem(peerd: Peerd, monkeypatch: pytest.MonkeyPatch) -> None:
    with as_another_user(), TemporaryDirectory() as folder:
        monkeypatch.chdir(folder)
        Path("peerd.toml").write_text("[node]\nname = 'here'\n")
        assert peerd("check", "--json").json["ok"]
        Path(folder).chmod(0o555)
        messages = {
            problem["key"]: problem["message"] for problem in peerd("check", "--json", status=1).json["problems"]
        }
        Path(folder).chmod(0o755)
    assert messages == {
        "node.run_directory": f"{folder}/.peerd/here cannot be created: {folder}: permission denied",
        "database.url": f"{folder}/peerd.sqlite cannot be created: {folder}: permission denied",
    }


@contextmanager
def as_another_user() -> Iterator[None]:
    """Run as a user without privileges: root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_database_file_that_others_can_read_is_a_warning(peerd: Peerd, client: Client, project: Path) -> None:
    def of_the_database() -> list[dict[str, str]]:
        return [one for one in peerd("check", "--json").json["warnings"] if one["key"] == "database.url"]

    assert of_the_database() == []
    (project / "peerd.sqlite").chmod(0o644)
    [warning] = of_the_database()
    assert "can be read by other users" in warning["message"]
    assert "chmod go-rwx" in warning["remedy"]
