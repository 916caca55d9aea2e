from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import ValidationError

from peerd.config import Check, ConfigError, Problem, Settings, check, load, template

Write = Callable[[str], Path]
EMPTY: Mapping[str, str] = {}


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


# ---------------------------------------------------------------- what is read


def test_an_empty_file_is_a_node_on_sqlite_in_the_folder_of_the_project(write: Write, project: Path) -> None:
    settings = load(write(""), EMPTY)
    assert settings.node.name == socket.gethostname()
    assert settings.project_directory == project
    assert settings.database.url == f"sqlite:///{project}/peerd.sqlite"
    assert settings.node.run_directory == project / ".peerd" / settings.node.name
    assert (settings.node.grace, settings.manager.max_update, settings.manager.max_failed) == (30, 30, 259_200)


def test_everything_can_be_said(write: Write, project: Path) -> None:
    settings = load(
        write(
            """
            [node]
            name = "video-1"
            address = "10.0.0.7"
            zone = "rack-a"
            run_directory = "run"
            grace = "1m30s"
            shutdown_interval = 0.5
            heartbeat_every = "3s"
            [database]
            url = "mysql://peerd@db/peerd"
            pool_size = 8
            [workers.video]
            tasks = ["studio.jobs:video", "studio.jobs:posters"]
            enabled = false
            processes = 2
            count = 4
            queues = ["video"]
            max_attempts = 5
            delay_ratio = "1m"
            update = "5s"
            poll_every = "500ms"
            timeout = "2h"
            grace = "10s"
            recycle_after = 1000
            recycle_age = "1d"
            recycle_memory = "500MB"
            options = { height = 720, codecs = ["h264"] }
            [workers.cleanup]
            worker = "studio.jobs:Cleanup"
            sleep = "1m"
            [manager]
            every = "2s"
            pinned_policy = "move"
            batch = 100
            [logging]
            level = "DEBUG"
            format = "json"
            """,
        ),
        EMPTY,
    )
    video, cleanup = settings.workers["video"], settings.workers["cleanup"]
    assert settings.node.run_directory == project / "run"
    assert settings.node.grace == 90
    assert video.tasks == ("studio.jobs:video", "studio.jobs:posters")
    assert (video.delay_ratio, video.timeout, video.recycle_memory) == (60, 7200, 500_000_000)
    assert video.options == {"height": 720, "codecs": ["h264"]}
    assert (cleanup.worker, cleanup.tasks, cleanup.sleep) == ("studio.jobs:Cleanup", None, 60)
    assert settings.manager.inactive_after == 6, "two heartbeats"
    assert settings.logging.level == "debug"


def test_settings_cannot_be_changed(write: Write) -> None:
    settings = load(write(""), EMPTY)
    with pytest.raises(ValidationError):
        settings.node.name = "other"  # type: ignore[misc]


def test_which_settings_were_given_can_be_told_from_defaults(write: Write) -> None:
    worker = load(write('[workers.a]\ntasks = "a:b"\ncount = 1\n'), EMPTY).workers["a"]
    assert worker.model_fields_set == {"tasks", "count"}


# ---------------------------------------------------------------- where it is found


def test_the_nearest_file_above_is_found(write: Write, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[node]\nname = 'above'\n")
    (project / "deep" / "folder").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "folder")
    assert load(environment=EMPTY).node.name == "above"


def test_a_variable_names_the_file(project: Path, write: Write) -> None:
    path = write("[node]\nname = 'named'\n").rename(project / "other.toml")
    assert load(environment={"PEERD_CONFIG": str(path)}).node.name == "named"


def test_without_a_file_one_is_told_how_to_make_one(project: Path) -> None:
    with pytest.raises(ConfigError, match="no such file, here or in a folder above; run 'peerd init'"):
        load(environment=EMPTY)


def test_without_a_file_the_address_of_the_database_is_enough(project: Path) -> None:
    settings = load(environment={"PEERD_DATABASE_URL": "mysql://db/peerd"})
    assert (settings.database.url, settings.file, settings.project_directory) == ("mysql://db/peerd", None, project)


def test_a_named_file_must_exist(project: Path) -> None:
    assert problems(project / "no.toml") == [
        f"{project}/no.toml: no such file or directory; name the file with --config or PEERD_CONFIG",
    ]


# ---------------------------------------------------------------- the environment


def test_the_environment_overrides_the_file(write: Write) -> None:
    environment = {
        "PEERD_NODE_NAME": "7",
        "PEERD_NODE_GRACE": "5",
        "PEERD_DATABASE_URL": "postgres://db/peerd",
        "PEERD_DATABASE_POOL_SIZE": "9",
        "PEERD_MANAGER_MAX_FAILED": "1d",
        "PEERD_LOGGING_FORMAT": "json",
        "PEERD_TEST_RUN_FOLDER": "of no concern",
    }
    settings = load(write("[node]\nname = 'file'\nzone = 'kept'\n"), environment)
    assert (settings.node.name, settings.node.zone, settings.node.grace) == ("7", "kept", 5)
    assert (settings.database.url, settings.database.pool_size) == ("postgres://db/peerd", 9)
    assert settings.manager.max_failed == 86_400
    assert settings.logging.format == "json"


def test_a_mistake_in_the_environment_is_placed_there(write: Write) -> None:
    environment = {"PEERD_NODE_GRACE": "soon", "PEERD_NODE_NAEM": "a", "PEERD_DATABASE_POOL_SIZE": "many"}
    assert problems(write(""), environment) == [
        "environment: PEERD_DATABASE_POOL_SIZE: must be a whole number; this is text",
        (
            "environment: PEERD_NODE_GRACE: 'soon' is not a duration: give seconds, or text such as "
            "'500ms', '10s', '1h30m', '3d'"
        ),
        "environment: PEERD_NODE_NAEM: overrides no setting; did you mean 'PEERD_NODE_NAME'?",
    ]


# ---------------------------------------------------------------- what is wrong


def test_every_error_is_told_at_once_with_its_line_and_remedy(write: Write) -> None:
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


def test_a_command_is_a_list_and_its_name_its_own(write: Write) -> None:
    path = write(
        """
        [workers.video]
        tasks = "studio:video"
        [commands.video]
        command = "ssh -N storage"
        [commands.agent]
        command = []
        [commands.tunnel]
        command = ["ssh", "-N", "storage"]
        """,
    )
    assert problems(path) == [
        "peerd.toml:3: commands.video: [workers.video] has this name; choose another name",
        (
            "peerd.toml:4: commands.video.command: is a text; "
            "write the program and its arguments as a list, no shell reads them"
        ),
        "peerd.toml:5: commands.agent: is the name of a process of peerd's own; choose another name",
        "peerd.toml:6: commands.agent.command: must not be empty",
    ]


def test_every_error_of_a_web_section_is_told(write: Write) -> None:
    path = write(
        """
        [workers.video]
        tasks = "studio:video"
        [web.video]
        app = "studio.site"
        bind = ["8080", ":80", ":80"]
        unix_mode = 660
        hang_after = "never"
        [web.site]
        app = "studio.site:app"
        bind = ["[::1]:80", "unix:site.sock"]
        unix_mode = "rw"
        """,
    )
    assert problems(path) == [
        "peerd.toml:3: web.video: [workers.video] has this name; choose another name",
        (
            "peerd.toml:4: web.video.app: 'studio.site' names no object: write 'module:name', "
            "for example 'studio.jobs:video'"
        ),
        (
            "peerd.toml:5: web.video.bind: '8080' names no port; write \"127.0.0.1:8080\", "
            '":8080" for every IPv4 address, "[::]:8080" for every IPv6 address, "unix:/path", or "systemd:NAME"'
        ),
        "peerd.toml:6: web.video.unix_mode: is no file mode: write '0660', or 0o660",
        (
            "peerd.toml:7: web.video.hang_after: 'never' is not a duration: give seconds, or text such as "
            "'500ms', '10s', '1h30m', '3d'"
        ),
        ("peerd.toml:11: web.site.unix_mode: 'rw' is no file mode: write it as chmod reads it, for example '0660'"),
    ]


def test_a_web_section_is_read_with_absolute_paths_for_its_sockets(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = ["unix:run/site.sock", ":8080"]
        unix_mode = "0660"
        hang_after = "none"
        """,
    )
    web = load(path, EMPTY).web["site"]
    assert web.bind == (f"unix:{path.parent}/run/site.sock", ":8080")
    assert (web.unix_mode, web.hang_after) == (0o660, None)


def test_two_web_sections_do_not_listen_in_one_place(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = "[::1]:80"
        [web.api]
        app = "studio.api:app"
        bind = ["[0::1]:80", ":80"]
        """,
    )
    assert problems(path) == ["peerd.toml:6: web.api.bind: [web.site] listens on [0::1]:80 too; choose another"]


def test_a_unix_socket_whose_absolute_path_is_too_long_is_refused(write: Write) -> None:
    path = write(f"""
        [web.site]
        app = "studio.site:app"
        bind = "unix:{"x" * 100}"
        """)
    [problem] = problems(path)
    assert "web.site.bind: the path of a unix socket has at most 107 bytes" in problem


def test_what_a_web_process_would_cut_off_or_share_is_a_doubt(write: Write) -> None:
    path = write(
        """
        [web.site]
        app = "studio.site:app"
        bind = ":80"
        keep_alive = "75s"
        reuse_port = true
        """,
    )
    found = check(path, EMPTY)
    assert [(warning.line, warning.key) for warning in found.warnings] == [
        (4, "web.site.keep_alive"),
        (5, "web.site.reuse_port"),
    ]


def test_an_error_holds_its_problems(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write("[node]\ngrace = -1\n"), EMPTY)
    [problem] = caught.value.problems
    assert isinstance(problem, Problem)
    assert (problem.file, problem.line, problem.key) == ("peerd.toml", 2, "node.grace")


@pytest.mark.parametrize(
    "text, problem",
    [
        ("[node]\nname = \n", "peerd.toml:2: this is not TOML"),
        ("[node]\nname = 'a'\nname = 'b'\n", "peerd.toml:3: name is given twice; keep one of them"),
        ("[node]\n[database]\n[node]\n", "peerd.toml:3: [node] is given twice; keep one of them"),
        ("[node]\nname = 'a\n", "peerd.toml:2: this is not TOML"),
        ("[node]\nname = [1,\n", "peerd.toml:2: this is not TOML"),
    ],
)
def test_what_is_not_toml_is_placed_too(text: str, problem: str, write: Write, project: Path) -> None:
    write(text)
    [found] = problems(Path("peerd.toml"))
    assert found.startswith(problem)


@pytest.mark.parametrize("text", ["node = 3", "workers = 'a'", "[workers]\nvideo = 3", "[[node]]\nname = 'a'"])
def test_a_value_in_the_place_of_a_table_is_told(text: str, write: Write) -> None:
    [problem] = problems(write(text))
    assert "must be a table" in problem


@pytest.mark.parametrize("place", ["project_directory", "file"])
def test_what_the_place_of_the_file_says_cannot_be_set(place: str, write: Write) -> None:
    [problem] = problems(write(f'{place} = "/"'))
    assert "unknown table" in problem


def test_a_heartbeat_slower_than_the_judgement_of_death_is_refused(write: Write) -> None:
    [problem] = problems(write("[manager]\ninactive_after = '2s'\n"))
    assert problem.startswith("peerd.toml:2: manager.inactive_after: 2s is no longer than a heartbeat (2s)")


def test_touching_more_slowly_than_tasks_are_rescued_is_refused(write: Write) -> None:
    [problem] = problems(write("[workers.a]\ntasks = 'a:b'\nupdate = '1m'\n"))
    assert "workers.a.update: running tasks are touched every 1m, but are taken away 30s after" in problem


# ---------------------------------------------------------------- passwords


def test_the_password_comes_from_its_file_and_is_never_shown(write: Write, project: Path) -> None:
    (project / "secret").write_text("s3cr3t@\n")
    (project / "secret").chmod(0o600)
    found = checked(
        write("[database]\nurl = 'mysql://peerd@db/peerd'\npassword_file = 'secret'\n[workers.a]\ntasks='a:b'")
    )
    settings = found.settings
    assert isinstance(settings, Settings)
    assert settings.database.url == "mysql://peerd:s3cr3t%40@db/peerd"
    assert settings.database.masked_url == "mysql://peerd:***@db/peerd"
    assert "s3cr3t" not in repr(settings) + str(settings)
    assert found.warnings == []


@pytest.mark.parametrize(
    "database, words",
    [
        ("url = 'mysql://peerd@db/peerd'", "no such file or directory; write the password there"),
        ("url = 'mysql://peerd:a@db/peerd'", "the url holds a password already; keep one of them"),
        ("", "SQLite has no password; take it out"),
    ],
)
def test_a_password_file_that_cannot_be_used_is_told(database: str, words: str, write: Write) -> None:
    [problem] = problems(write(f"[database]\npassword_file = 'none'\n{database}\n"))
    assert problem.startswith("peerd.toml:2: database.password_file: ")
    assert words in problem


# ---------------------------------------------------------------- warnings


@pytest.mark.parametrize(
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
def test_what_is_probably_not_meant_is_a_warning(text: str, warning: str, write: Write) -> None:
    found = checked(write(text))
    assert found.problems == []
    assert any(warning in str(each) for each in found.warnings)
    assert "s3cr3t" not in str(found.warnings)


# ---------------------------------------------------------------- the file that peerd init writes


def test_the_template_is_a_configuration_without_mistakes(write: Write) -> None:
    assert checked(write(template())).problems == []


def test_what_the_template_has_commented_out_is_accepted(write: Write) -> None:
    lines = template().splitlines()
    settings = [line.removeprefix("# ") if " = " in line or line.startswith("# [") else line for line in lines]
    others = ("url = ", "password_file = ", "secret_file = ")
    assert problems(write("\n".join(line for line in settings if not line.startswith(others)))) == []


def test_a_hook_has_exactly_one_way_out_and_what_it_is_told_makes_sense(write: Write) -> None:
    path = write(
        """
        [alerts.both]
        webhook = "ftp://chat.example"
        log = true
        [alerts.none]
        on = ["dead-tasks", "bad-weather"]
        at_most = "often"
        [alerts.office.mail]
        server = "mail.example:smtp"
        sneder = "peerd@studio.example"
        sender = "peerd@studio.example"
        to = "ops@studio.example"
        """,
    )
    found = problems(path)
    assert [line for line in found if "must be" not in line] == [
        "peerd.toml:1: alerts.both: has webhook and log; give exactly one of webhook, mail, command and log = true",
        "peerd.toml:4: alerts.none: has no way out; give exactly one of webhook, mail, command and log = true",
        "peerd.toml:6: alerts.none.at_most: 'often' is no rate: write a number and a time, such as '1 per 5m'",
        "peerd.toml:8: alerts.office.mail.server: 'mail.example:smtp' is no mail server: write 'host' or 'host:port'",
        "peerd.toml:9: alerts.office.mail.sneder: unknown key; did you mean 'sender'?",
    ]
    assert "peerd.toml:2: alerts.both.webhook: must be an address that begins with http:// or https://" in found
    assert any(line.startswith("peerd.toml:5: alerts.none.on: must be 'crash-loop', ") for line in found)


def test_the_password_of_a_mail_server_lies_beside_the_configuration(write: Write) -> None:
    mail = """
        [alerts.office.mail]
        server = "mail.example"
        sender = "peerd@studio.example"
        to = ["ops@studio.example"]
        user = "peerd"
        password_file = "mail.password"
        """
    path = write(mail)
    missing = f"peerd.toml:6: alerts.office.mail.password_file: {path.parent}/mail.password: there is no such file"
    assert problems(path) == [f"{missing}; write the password there"]
    (path.parent / "mail.password").write_text("secret")
    office = load(path, EMPTY).alerts["office"].mail
    assert office is not None
    assert office.password_file == path.parent / "mail.password"
    assert office.host_and_port == ("mail.example", 25)
