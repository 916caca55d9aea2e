from __future__ import annotations

import socket
from pathlib import Path

import pytest

from peerd.cli.project.init import TEMPLATE
from peerd.config import ConfigError, Settings, load
from peerd.config.section import deserialize_section, serialize_section
from peerd.config.settings import AccessSettings
from peerd.entrypoints.node_plan import build_node_plan
from peerd.runtime.frames import encode
from peerd.supervision.plan import Plan
from tests.support.rows import rows
from tests.unit.config.conftest import EMPTY, Write, checked, problems


def test_an_empty_file_is_a_node_on_sqlite_in_the_folder_of_the_project(write: Write, project: Path) -> None:
    settings = load(write(""), EMPTY)
    assert settings.node.name == socket.gethostname()
    assert settings.project_directory == project
    assert settings.database.url == f"sqlite:///{project}/peerd.sqlite"
    assert settings.node.run_directory == project / ".peerd" / settings.node.name
    assert (settings.node.grace, settings.manager.max_update, settings.manager.max_failed) == (30, 30, 259_200)


def test_settings_are_read_with_their_units(write: Write, project: Path) -> None:
    text = """
        node = { run_directory = "run", grace = "1m30s", heartbeat_every = "3s" }
        logging.level = "DEBUG"
        workers.cleanup = { worker = "studio.jobs:Cleanup", sleep = "1m" }
        [workers.video]
        tasks = ["studio.jobs:video", "studio.jobs:posters"]
        delay_ratio = "1m"
        poll_every = "500ms"
        recycle_memory = "500MB"
        options = { height = 720, codecs = ["h264"] }
    """
    settings = load(write(text), EMPTY)
    video, cleanup = settings.workers["video"], settings.workers["cleanup"]
    assert (settings.node.run_directory, settings.node.grace) == (project / "run", 90)
    assert video.tasks == ("studio.jobs:video", "studio.jobs:posters")
    assert (video.delay_ratio, video.poll_every) == (60, 0.5)
    assert (video.recycle_memory, video.options) == (500_000_000, {"height": 720, "codecs": ["h264"]})
    assert (cleanup.worker, cleanup.tasks, cleanup.sleep) == ("studio.jobs:Cleanup", None, 60)
    assert settings.manager.inactive_after == 6, "two heartbeats"
    assert settings.logging.level == "debug"


def test_the_file_is_the_nearest_above_or_of_a_variable_or_the_error_names_the_remedy(
    write: Write, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("[node]\nname = 'above'\n")
    (project / "deep" / "folder").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "folder")
    assert load(environment=EMPTY).node.name == "above"
    path = path.rename(project / "other.toml")
    assert load(environment={"PEERD_CONFIG": str(path)}).node.name == "above"
    monkeypatch.chdir(project)
    settings = load(environment={"PEERD_DATABASE_URL": "mysql://db/peerd"})
    assert (settings.database.url, settings.file, settings.project_directory) == ("mysql://db/peerd", None, project)
    with pytest.raises(ConfigError, match="no such file, here or in a folder above; run 'peerd init'"):
        load(environment=EMPTY)
    assert problems(project / "no.toml") == [
        f"{project}/no.toml: no such file or directory; name the file with --config or PEERD_CONFIG"
    ]


def test_the_environment_overrides_the_file_and_its_mistakes_are_reported_there(write: Write) -> None:
    environment = {
        "PEERD_NODE_NAME": "7", "PEERD_DATABASE_URL": "postgres://db/peerd", "PEERD_DATABASE_POOL_SIZE": "9",
        "PEERD_MANAGER_MAX_FAILED": "1d", "PEERD_TELEMETRY_METRICS": "false", "PEERD_TEST_RUN_FOLDER": "of no concern",
    }  # fmt: skip
    settings = load(write("[node]\nname = 'file'\nzone = 'kept'\n"), environment)
    assert (settings.node.name, settings.node.zone, settings.manager.max_failed) == ("7", "kept", 86_400)
    assert (settings.database.url, settings.database.pool_size) == ("postgres://db/peerd", 9)
    assert not settings.telemetry.metrics
    environment = {"PEERD_NODE_GRACE": "soon", "PEERD_NODE_NAEM": "a", "PEERD_DATABASE_POOL_SIZE": "many"}
    assert problems(write(""), environment) == [
        "environment: PEERD_DATABASE_POOL_SIZE: must be a whole number; this is text",
        (
            "environment: PEERD_NODE_GRACE: 'soon' is not a duration: give seconds, or text such as "
            "'500ms', '10s', '1h30m', '3d'"
        ),
        "environment: PEERD_NODE_NAEM: overrides no setting; did you mean 'PEERD_NODE_NAME'?",
    ]


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


@rows(
    "database, words", [
    ("url = 'mysql://peerd@db/peerd'", "no such file or directory; write the password there"),
    ("url = 'mysql://peerd:a@db/peerd'", "the url holds a password already; keep one of them"),
    ("", "SQLite has no password; take it out"),
])  # fmt: skip
def test_a_password_file_that_cannot_be_used_is_reported(database: str, words: str, write: Write) -> None:
    [problem] = problems(write(f"[database]\npassword_file = 'none'\n{database}\n"))
    assert problem.startswith("peerd.toml:2: database.password_file: ")
    assert words in problem


def test_the_template_is_a_configuration_without_mistakes_and_so_is_what_it_has_commented_out(write: Write) -> None:
    assert checked(write(TEMPLATE)).problems == []
    lines = TEMPLATE.splitlines()
    settings = [line.removeprefix("# ") if " = " in line or line.startswith("# [") else line for line in lines]
    others = ("url = ", "password_file = ", "secret_file = ")
    assert problems(write("\n".join(line for line in settings if not line.startswith(others)))) == []


CONFIG = """
[node]
name = "one"
grace = "1m"
[workers.video]
tasks = ["studio.jobs:video", "studio.jobs:posters"]
count = 1
[workers.video.options]
numbers = [1, 0.5, nan, inf, 123456789012345678901234567890]
moment = 2026-01-01T00:00:00Z
[alerts]
chat = { webhook = "https://chat.example/secret", on = ["hung", "dead-tasks"], at_most = "2 per 1m" }
boss.mail = { server = "mail.example", sender = "peerd@studio.example", to = "boss@studio.example" }
[schedules]
refresh = { run = "studio.jobs:refresh", args = { count = 3 }, interval = "10s" }
[web]
site = { app = "site:app", bind = ["127.0.0.1:0", "unix:run/site"], hang_after = "none" }
[gateway]
queue = { bind = "unix:run/queue", protocols = "json" }
[queues]
mails.history = "1d"
[access]
allowed_hosts = "jobs.example"
mask = "card"
preview_folders = ["out", "/srv/posters"]
[logging]
file = "log/peerd.log"
"""


@pytest.fixture
def settings(write: Write) -> Settings:
    return load(write(CONFIG), {})


def test_deserialized_settings_equal_those_that_were_read(settings: Settings) -> None:
    deserialized = deserialize_section(serialize_section(settings), Settings)
    for section in (
        "node", "database", "cluster", "web", "gateway", "queues", "agent", "schedules", "manager", "logging", "alerts",
        "access",
    ):  # fmt: skip
        assert getattr(deserialized, section) == getattr(settings, section), section
    assert deserialized.workers["video"].given == ("count", "options", "tasks")
    assert deserialized.project_directory == settings.project_directory
    assert isinstance(deserialized.logging.file, Path)


def test_a_plan_can_carry_any_options_and_is_the_same_after_another_reading(settings: Settings, write: Write) -> None:
    again = build_node_plan(load(write(CONFIG), {}), "life")
    assert again == build_node_plan(settings, "life"), "or every reload would replace every process"
    encode({"plan": build_node_plan(settings, "life")["kinds"]})
    assert Plan.parse(build_node_plan(settings, "life")).kinds
    options = deserialize_section(serialize_section(settings), Settings).workers["video"].options
    assert options["numbers"] == [1, 0.5, None, None, 123456789012345678901234567890]
    assert options["moment"] == "2026-01-01T00:00:00Z"


def test_processes_are_planned_with_their_addresses_and_all_that_they_read(settings: Settings) -> None:
    kinds = {kind.name: kind for kind in Plan.parse(build_node_plan(settings, "life")).kinds}
    queue = kinds["queue"]
    assert (queue.role, queue.sockets, queue.hang_after) == ("gateway", settings.gateway["queue"].bind, 60.0)
    assert (queue.drains, queue.drain_timeout) == (True, None)
    assert queue.payload["settings"]["queues"] == kinds["manager"].payload["settings"]["queues"]
    assert queue.payload["settings"]["queues"] == {"mails": {"history": 86400.0}}
    assert "queues" not in kinds["site"].payload["settings"]
    assert not kinds["site"].drains
    access = {name: deserialize_section(kinds[name].payload["settings"], Settings).access for name in kinds}
    assert access["site"] == settings.access
    assert access["video"] == access["agent"] == AccessSettings(mask=settings.access.mask)
    assert access["manager"] == AccessSettings(), "another setting of access replaces no manager"
