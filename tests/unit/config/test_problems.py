"""Every mistake in a file is reported at once, with its line and its remedy; doubtful settings are warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerd.config import ConfigError, Problem, load
from tests.support.rows import rows
from tests.unit.config.helpers import EMPTY, Write, checked, problems


def test_every_error_is_reported_at_once_with_its_line_and_remedy(write: Write) -> None:
    path = write(
        """
        [node]
        nmae = "video-1"
        grace = "soon"
        [worker.video]
        [workers.video]
        tasks = "studio.jobs:video"
        worker = "studio.jobs:Video"
        count = "4"
        procesess = 2
        [workers.audio]
        enabled = "yes"
        [workers.manager]
        worker = "studio"
        [workers."bad name"]
        tasks = []
        [manager]
        batch = 5000
        pinned_policy = "moove"
        [database]
        url = "redis://:secret@db/0"
        [web.api]
        app = "peerd.web:app"
        [logging]
        level = 3
        """,
    )
    assert problems(path) == [
        "peerd.toml:2: node.nmae: unknown key; did you mean 'name'?",
        (
            "peerd.toml:3: node.grace: 'soon' is not a duration: give seconds, or text such as "
            "'500ms', '10s', '1h30m', '3d'"
        ),
        "peerd.toml:4: worker: unknown table; did you mean 'workers'?",
        "peerd.toml:7: workers.video.worker: a worker has tasks or worker, not both; keep one of them",
        "peerd.toml:8: workers.video.count: must be a whole number; this is text",
        "peerd.toml:9: workers.video.procesess: unknown key; did you mean 'processes'?",
        (
            "peerd.toml:10: workers.audio: has nothing to run; "
            'name a queue, tasks = "studio.jobs:video", or a class, worker = "studio.jobs:Cleanup"'
        ),
        "peerd.toml:11: workers.audio.enabled: must be true or false; this is text",
        "peerd.toml:12: workers.manager: is the name of a process of peerd's own; choose another name",
        (
            "peerd.toml:13: workers.manager.worker: 'studio' names no object: write 'module:name', "
            "for example 'studio.jobs:video'"
        ),
        (
            "peerd.toml:14: workers.bad name: is not a name; "
            "use up to 191 letters, digits, '.', '_' and '-', a letter or digit first"
        ),
        "peerd.toml:15: workers.bad name.tasks: must not be empty",
        "peerd.toml:17: manager.batch: must be at most 500",
        "peerd.toml:18: manager.pinned_policy: must be 'wait', 'move' or 'fail'",
        (
            "peerd.toml:20: database.url: redis:// is no database that peerd knows: "
            "write mysql://user@host/name, postgresql://user@host/name or sqlite:///file"
        ),
        "peerd.toml:21: web.api.bind: must be given",
        "peerd.toml:24: logging.level: must be 'debug', 'info', 'warning' or 'error'",
    ]


def test_an_error_holds_its_problems(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write("[node]\ngrace = -1\n"), EMPTY)
    [problem] = caught.value.problems
    assert isinstance(problem, Problem)
    assert (problem.file, problem.line, problem.key) == ("peerd.toml", 2, "node.grace")


@rows("text, problem", [
    ("[node]\nname = \n", "peerd.toml:2: this is not TOML"),
    ("[node]\nname = 'a'\nname = 'b'\n", "peerd.toml:3: name is given twice; keep one of them"),
    ("[node]\n[database]\n[node]\n", "peerd.toml:3: [node] is given twice; keep one of them"),
    ("[node]\nname = 'a\n", "peerd.toml:2: this is not TOML"),
    ("[node]\nname = [1,\n", "peerd.toml:2: this is not TOML"),
])  # fmt: skip
def test_invalid_toml_is_reported_with_its_line(text: str, problem: str, write: Write, project: Path) -> None:
    write(text)
    [found] = problems(Path("peerd.toml"))
    assert found.startswith(problem)


def test_a_value_in_place_of_a_table_is_reported(write: Write) -> None:
    for text in ("node = 3", "workers = 'a'", "[workers]\nvideo = 3", "[[node]]\nname = 'a'"):
        [problem] = problems(write(text))
        assert "must be a table" in problem
    for key in ("project_directory", "file"):  # derived from the path of the file
        [problem] = problems(write(f'{key} = "/"'))
        assert "unknown table" in problem


@rows("text, problem", [
    (f"[node]\nzone = '{'z' * 101}'", "peerd.toml:2: node.zone: must have at most 100 characters"),
    ("[cluster]\nsecret = 'short'", "peerd.toml:2: cluster.secret: must have at least 16 characters"),
    (f"[web.a]\napp='a:b'\nbind={[f':{n}' for n in range(21)]}", "peerd.toml:3: web.a.bind: lists more than 20"),
])  # fmt: skip
def test_a_text_or_list_of_a_wrong_length_is_refused_with_the_limit(text: str, problem: str, write: Write) -> None:
    assert problems(write(text)) == [problem]


def test_a_heartbeat_or_a_touch_slower_than_what_waits_for_it_is_refused(write: Write) -> None:
    [problem] = problems(write("[manager]\ninactive_after = '2s'\n"))
    assert problem.startswith("peerd.toml:2: manager.inactive_after: 2s is no longer than a heartbeat (2s)")
    [problem] = problems(write("[workers.a]\ntasks = 'a:b'\nupdate = '1m'\n"))
    assert "workers.a.update: running tasks are touched every 1m, but are taken away 30s after" in problem


@rows(
    "text, warning",
    [
        ("", "workers: no worker is enabled"),
        (
            "[node]\ngrace = '5m'",
            "systemd kills a service that takes more than 1m30s to stop; set TimeoutStopSec above 5m",
        ),
        ("[workers.a]\ntasks = 'a:b'\ngrace = '1m'", "the node stops after 30s, whatever a worker is given"),
        ("[workers.a]\ntasks = 'a:b'\nupdate = '20s'", "one late touch and a running task is taken away"),
        (
            "[workers.a]\ntasks = 'a:b'\n[workers.c]\ntasks = 'a:b'\nmax_attempts = 5",
            "peerd.toml:5: workers.c.max_attempts: a:b is served by a too, with another max_attempts",
        ),
        ("[node]\nzone = 'b'", "SQLite serves one machine only"),
        ("[database]\nurl = 'mysql://peerd:s3cr3t@db/peerd'", "every user of this machine can read the password"),
    ],
)
def test_settings_that_are_probably_not_meant_are_a_warning(text: str, warning: str, write: Write) -> None:
    found = checked(write(text))
    assert found.problems == []
    assert any(warning in str(each) for each in found.warnings)
    assert "s3cr3t" not in str(found.warnings)


def test_each_world_readable_secret_is_reported_with_its_file(write: Write, project: Path) -> None:
    path = write(
        """
        [database]
        url = "mysql://peerd@db/peerd"
        password_file = "database.password"
        [cluster]
        secret_file = "cluster.secret"
        [workers.a]
        tasks = "a:b"
        [alerts.chat]
        webhook = "https://chat.example/hooks/9f1c"
        [alerts.post]
        mail = { server = "mail", sender = "a@b", to = "c@d", user = "peerd", password_file = "mail.password" }
        """
    )
    for name in ("database.password", "cluster.secret", "mail.password"):
        (project / name).write_text("a secret of some length")
    found = checked(path)
    assert found.problems == []
    remedies = {warning.key: warning.remedy for warning in found.warnings}
    assert remedies == {
        "database.password_file": f"chmod o= {project}/database.password",
        "cluster.secret_file": f"chmod o= {project}/cluster.secret",
        "alerts.chat.webhook": f"chmod o= {path.absolute()}",
        "alerts.post.mail.password_file": f"chmod o= {project}/mail.password",
    }
    for file in (path, *(project / name for name in ("database.password", "cluster.secret", "mail.password"))):
        file.chmod(0o640)
    assert checked(path).warnings == []


@rows("variable, key", [({}, "cluster.secret"), ({"PEERD_CLUSTER_SECRET": "a secret that all nodes share"}, None)])
def test_a_secret_in_the_file_itself_counts_unless_the_environment_has_another(
    variable: dict[str, str], key: str | None, write: Write
) -> None:
    path = write("[cluster]\nsecret = 'a secret that all nodes share'\n[workers.a]\ntasks = 'a:b'\n")
    assert [warning.key for warning in checked(path, variable).warnings] == ([key] if key else [])


def test_contradictions_are_reported_beside_a_wrong_value_and_not_for_its_default(write: Write) -> None:
    found = problems(
        write(
            """
            [node]
            grace = "soon"
            [workers.a]
            tasks = "a:b"
            update = "1m"
            [workers.b]
            tasks = "a:b"
            [manager]
            inactive_after = "1s"
            [schedules.late]
            run = "a:b"
            interval = "of course"
            workers = ["b", "c"]
            """
        )
    )
    assert [problem.partition(": ")[2].partition(": ")[0] for problem in found] == [
        "node.grace",
        "workers.a.update",
        "manager.inactive_after",
        "schedules.late.interval",
        "schedules.late.workers",
    ]
    [problem] = problems(write("[workers.a]\ntasks = 'a:b'\nupdate = '1m'\n[manager]\nmax_update = 'long'\n"))
    assert "manager.max_update" in problem
