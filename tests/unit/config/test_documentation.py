"""docs/configuration.md lists all settings with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from peerd.config import check, load
from peerd.config.reading.environment import setting_variables
from peerd.config.settings import (
    AccessSettings,
    AgentSettings,
    AlertSettings,
    ClusterSettings,
    CommandSettings,
    DatabaseSettings,
    ErrorSettings,
    GatewaySettings,
    LoggingSettings,
    MailSettings,
    ManagerSettings,
    NodeSettings,
    ObjectStoreSettings,
    QueueSettings,
    ScheduleSettings,
    Section,
    StatisticsSettings,
    StorageSettings,
    TelemetrySettings,
    WebSettings,
    WorkerSettings,
)
from peerd.domain.duration import parse_duration
from peerd.domain.size import parse_size

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
WORDS_FOR_DEFAULTS = {
    "name": "the host name",
    "run_directory": "`.peerd/<name>`",
    "inactive_after": "two heartbeats",
    "queues": "those that the code names",
    ("access", "allowed_hosts"): "none",
    ("access", "preview_folders"): "none",
    ("access", "mask"): "none",
    ("workers.NAME", "grace"): "the node's",
    ("commands.NAME", "grace"): "the node's",
    ("web.NAME", "grace"): "the node's",
    ("gateway.NAME", "grace"): "the node's",
    ("gateway.NAME", "bind"): "`127.0.0.1:11300`",
    "protocols": '`["beanstalk", "json"]`',
    "max_buffered_total": "`256MiB`",
    ("storage", "disks"): "none",
    ("storage", "object_stores"): "none",
    ("storage.object_stores.NAME", "prefix"): "none",
    "bucket": "",
    ("storage", "bind"): '`["127.0.0.1:7480"]`',
    "app": "",
    "bind": "",
    ("cluster", "bind"): "every address",
    "unix_mode": '`"0666"`',
    "max_head": "`64KiB`",
    "max_message": "`16MiB`",
    "root_path": "none",
    "forwarded_allow_ips": '`["127.0.0.1", "::1"]`',
    "options": "`{}`",
    "max_size": "`50MB`",
    ("commands.NAME", "environment"): "`{}`",
    "command": "",
    "tasks": "",
    "worker": "",
    "on": "all",
    ("alerts.NAME", "command"): "none",
    "server": "",
    "sender": "",
    "to": "",
}


def rows_of(section: str) -> dict[str, str]:
    """Key → default, as the page has them."""
    chapter = PAGE.partition(f"## `[{section}]`")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", chapter, re.MULTILINE))


@pytest.mark.parametrize(
    "section, model",
    [
        ("node", NodeSettings),
        ("database", DatabaseSettings),
        ("cluster", ClusterSettings),
        ("workers.NAME", WorkerSettings),
        ("web.NAME", WebSettings),
        ("gateway.NAME", GatewaySettings),
        ("queues.NAME", QueueSettings),
        ("commands.NAME", CommandSettings),
        ("agent", AgentSettings),
        ("errors", ErrorSettings),
        ("alerts.NAME", AlertSettings),
        ("alerts.NAME.mail", MailSettings),
        ("schedules.NAME", ScheduleSettings),
        ("manager", ManagerSettings),
        ("storage", StorageSettings),
        ("storage.object_stores.NAME", ObjectStoreSettings),
        ("access", AccessSettings),
        ("statistics", StatisticsSettings),
        ("logging", LoggingSettings),
        ("telemetry", TelemetrySettings),
    ],
)
def test_every_key_is_on_the_page_with_its_default(section: str, model: type[Section]) -> None:
    rows = rows_of(section)
    assert list(rows) == list(model.known_keys())
    defaults = {field.name: field.default for field in structs.fields(model)}
    for key in rows:
        default = defaults[key]
        expected = WORDS_FOR_DEFAULTS.get((section, key), WORDS_FOR_DEFAULTS.get(key))
        if expected is not None:
            assert rows[key] == expected
        elif default is None:
            assert rows[key] == "none"
        elif key == "capacity":
            assert parse_size(rows[key].strip("`")) == default
        elif isinstance(default, float):
            assert parse_duration(rows[key].strip("`")) == default
        else:
            assert rows[key].strip("`").lower() == str(default).lower()


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    (tmp_path / "peerd.toml").write_text(example[1])
    (tmp_path / "database.password").write_text("secret")
    assert check(tmp_path / "peerd.toml", {}).problems == []
    assert load(tmp_path / "peerd.toml", {}).workers["cleanup"].sleep == 60


def test_the_variables_of_the_page_exist() -> None:
    named = set(re.findall(r"`(PEERD_[A-Z_]+)`", PAGE)) - {"PEERD_CONFIG"}
    assert named <= set(setting_variables())
