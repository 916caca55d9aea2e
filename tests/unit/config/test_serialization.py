from __future__ import annotations

from pathlib import Path

import pytest

from peerd.config import load
from peerd.config.serialization import deserialize_section, serialize_section
from peerd.config.settings import AccessSettings, Settings
from peerd.entrypoints.node_plan import build_node_plan
from peerd.runtime.messages.frames import encode
from peerd.supervision.plan import Plan
from tests.unit.config.conftest import Write

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


def test_a_plan_can_carry_any_options(settings: Settings) -> None:
    encode({"plan": build_node_plan(settings, "life")["kinds"]})
    assert Plan.parse(build_node_plan(settings, "life")).kinds
    options = deserialize_section(serialize_section(settings), Settings).workers["video"].options
    assert options["numbers"] == [1, 0.5, None, None, 123456789012345678901234567890]
    assert options["moment"] == "2026-01-01T00:00:00Z"


def test_a_gateway_is_planned_with_its_address_and_the_options_of_queues(settings: Settings) -> None:
    plan = Plan.parse(build_node_plan(settings, "life"))
    kinds = {kind.name: kind for kind in plan.kinds}
    queue = kinds["queue"]
    assert (queue.role, queue.sockets, queue.hang_after) == ("gateway", settings.gateway["queue"].bind, 60.0)
    assert (queue.drains, queue.drain_timeout) == (True, None)
    assert queue.payload["settings"]["queues"] == kinds["manager"].payload["settings"]["queues"]
    assert queue.payload["settings"]["queues"] == {"mails": {"history": 86400.0}}
    assert "queues" not in kinds["site"].payload["settings"]
    assert not kinds["site"].drains


def test_a_process_is_planned_with_all_that_it_reads_of_access(settings: Settings) -> None:
    kinds = {kind.name: kind for kind in Plan.parse(build_node_plan(settings, "life")).kinds}
    planned = {name: deserialize_section(kinds[name].payload["settings"], Settings).access for name in kinds}
    assert planned["site"] == settings.access
    assert planned["video"] == planned["agent"] == AccessSettings(mask=settings.access.mask)
    assert planned["manager"] == AccessSettings(), "another setting of access replaces no manager"


def test_two_readings_of_one_file_make_the_same_plan(settings: Settings, write: Write) -> None:
    again = build_node_plan(load(write(CONFIG), {}), "life")
    assert again == build_node_plan(settings, "life"), "or every reload would replace every process"
