"""`peerd init`, `check`, `migrate` and `systemd`."""

from __future__ import annotations

import os
import shutil
import subprocess
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
    assert {"what": "worker hello", "words": "takes from hello; handles greet"} in peerd("check", "--json").json[
        "right"
    ]


def test_no_existing_file_is_overwritten(peerd: Peerd, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("mine")
    assert "jobs.py exists already; nothing was written" in peerd("init", status=1).err
    assert not (tmp_path / "peerd.toml").exists()
    ignored = tmp_path / "other" / ".gitignore"
    ignored.parent.mkdir()
    ignored.write_text("mine")
    peerd("init", "other")
    assert ((tmp_path / "other/jobs.py").exists(), ignored.read_text()) == (True, "mine")


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
[schedules.number]
run = "jobs:NUMBER"
interval = "1h"
[schedules.letters]
queue = "mail"
task = "sned"
interval = "1h"
[logging]
file = "jobs.py/peerd.log"
[workers.dead]
tasks = "dies:queue"
[errors]
hook = "nowhere:report"
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
    (project / "leaves.py").write_text("import sys\nprint('noise')\nsys.exit(5)\n")
    (project / "dies.py").write_text("import os\nos._exit(9)\n")
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
        (17, "schedules.number.run", "jobs:NUMBER is a int, not a function"),
        (21, "schedules.letters.task", "queue mail has no handler 'sned'; there are: send"),
        (24, "logging.file", "jobs.py: not a directory"),
        (26, "workers.dead.tasks", "ended the process with status 9"),
        (28, "errors.hook", "No module named 'nowhere'"),
    ):
        at, message = found.pop(key)
        assert (at, words in message) == (line, True), (key, at, message)
    assert found == {}
    assert [problem["line"] for problem in problems] == sorted(problem["line"] for problem in problems)
    assert "peerd.toml:2: node.cuont: unknown key" in peerd("check", status=1).out
    error = peerd("tasks", "list", "--json", status=1).error
    assert [problem["line"] for problem in error["problems"]] == [2, 5, 12]


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
[errors]
hook = "jobs:report"
"""


def test_what_is_right_is_described_and_a_queue_that_no_worker_here_serves_is_a_warning(
    peerd: Peerd, project: Path
) -> None:
    (project / "jobs.py").write_text(f"{JOBS}\nasync def site(scope, receive, send): ...\ndef report(error): ...\n")
    (project / "peerd.toml").write_text(RIGHT)
    answer = peerd("check", "--json").json
    right = {one["what"]: one["words"] for one in answer["right"]}
    assert right["gateway near"] == "serves beanstalk and json on 127.0.0.1:11300"
    assert right["gateway far"] == "serves json on :11301, with a token"
    assert right["web site"] == "serves jobs:site"
    assert right["errors"] == "are given to jobs:report"
    assert not right.keys() & {"gateway off", "worker resting"}
    warnings = {one["key"]: one for one in answer["warnings"]}
    assert list(warnings) == ["gateway.far", "gateway.far.token", "schedules.letters.queue"]
    warning = warnings["schedules.letters.queue"]
    assert (warning["line"], warning["remedy"]) == (18, "did you mean 'mail'?")
    assert "no worker of this configuration serves the queue mial" in warning["message"]
    shown = peerd("check")
    assert "no problems, 3 warnings" in shown.lines[-1]
    assert "a-token-of-some-length" not in shown.out


def test_a_folder_in_which_nothing_can_be_written_is_a_problem(peerd: Peerd, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    os.seteuid(user or NOBODY)  # root may write everywhere
    try:
        with TemporaryDirectory() as folder:
            monkeypatch.chdir(folder)
            Path("peerd.toml").write_text("[node]\nname = 'here'\n")
            assert peerd("check", "--json").json["ok"]
            Path(folder).chmod(0o555)
            problems = peerd("check", "--json", status=1).json["problems"]
            Path(folder).chmod(0o755)
    finally:
        os.seteuid(user)
    assert {problem["key"] for problem in problems} == {"node.run_directory", "database.url"}
    assert all(f"{folder}: permission denied" in problem["message"] for problem in problems)


def test_a_database_file_that_others_can_read_is_a_warning(peerd: Peerd, client: Client, project: Path) -> None:
    assert "chmod" not in peerd("check", "--json").out
    (project / "peerd.sqlite").chmod(0o644)
    [warning] = [one for one in peerd("check", "--json").json["warnings"] if one["key"] == "database.url"]
    assert "chmod go-rwx" in warning["remedy"]


def lines_of(unit: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))


def test_a_unit_leaves_the_longest_grace_and_is_of_the_projects_owner(peerd: Peerd, project: Path) -> None:
    (project / "jobs.py").write_text("")
    (project / "peerd.toml").write_text('[node]\nname = "here"\n[workers.video]\ntasks = "jobs:video"\ngrace = "10m"\n')
    made = peerd("systemd", "--json").json
    unit = lines_of(made["unit"])
    assert unit["TimeoutStopSec"] == "630s"
    assert (unit["Type"], unit["KillMode"], unit["User"]) == ("notify", "mixed", project.owner())
    assert unit["WorkingDirectory"] == str(project)
    assert unit["ExecReload"].endswith(f"reload --config {project / 'peerd.toml'}")
    own = lines_of(peerd("systemd", "--user", "--json").json["unit"])
    assert (unit["WantedBy"], own["WantedBy"]) == ("multi-user.target", "default.target")
    assert not own.keys() & {"User", "ProtectSystem", "PrivateTmp"}, "it takes no privileges"


def test_what_the_environment_gives_is_in_the_unit_but_for_the_address_of_the_database(
    peerd: Peerd, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERD_NODE_NAME", "two")
    monkeypatch.setenv("PEERD_DATABASE_URL", "mysql://peerd:secret@db/peerd")
    unit = peerd("systemd").out
    assert "Environment=PEERD_NODE_NAME=two" in unit
    assert "secret" not in unit
    assert "# PEERD_DATABASE_URL was given and is left out" in unit


def test_a_unit_is_not_written_to_a_folder_that_is_not_there(peerd: Peerd, project: Path) -> None:
    (project / "units").mkdir()
    assert "there is no folder missing" in peerd("systemd", "--output", "missing/", status=1).err
    assert not (project / "missing").exists()
    assert peerd("systemd", "--output", "units/mine.service", "--json").json["file"] == "units/mine.service"
    assert peerd("systemd", "--output", "units", "--json").json["file"] == "units/peerd-here.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit_also_of_a_folder_with_an_odd_name(
    peerd: Peerd, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = project / "my 100% $tudio"
    odd.mkdir()
    shutil.copy(project / "peerd.toml", odd)
    monkeypatch.setenv("PEERD_NODE_ZONE", 'rack "a" $1')
    monkeypatch.chdir(odd)
    for options in ((), ("--user",), ("--as", "daemon")):
        unit = odd / peerd("systemd", *options, "--output", ".", "--json").json["file"]
        command = ["systemd-analyze", "verify", str(unit)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        ours = [line for line in verified.stderr.splitlines() if unit.name in line]
        assert (verified.returncode, ours) == (0, []), options
