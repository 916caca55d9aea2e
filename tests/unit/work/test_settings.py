from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from peerd import TaskWorker, Worker, shell
from peerd.config.parsing import parse_section
from peerd.config.settings import WorkerSettings, WorkSettings
from peerd.runtime.frames import receive
from peerd.runtime.process.link import Link
from peerd.work import services
from peerd.work.services import recycle_when_due
from peerd.work.worker import work_settings_of
from tests.support.rows import rows


class Video(TaskWorker):
    queues = ("video",)
    count = 4
    update = "500ms"
    timeout = "2h"
    recycle_memory = "1GB"


def test_attributes_of_the_class_are_read_with_their_units() -> None:
    settings = Video().settings
    assert (settings.queues, settings.count, settings.update) == (("video",), 4, 0.5)
    assert (settings.timeout, settings.recycle_memory) == (7200.0, 10**9)
    one = type("One", (TaskWorker,), {"queues": "legacy"})
    assert one().settings.queues == ("legacy",), "one queue may be named without a tuple"
    assert Worker().settings == WorkSettings()
    values = {"worker": "m:Video", "count": 2, "delay_ratio": "10s", "timeout": None, "options": {"folder": "/srv"}}
    settings = work_settings_of(Video(), parse_section(WorkerSettings, values))
    assert (settings.count, settings.delay_ratio, settings.options) == (2, 10.0, {"folder": "/srv"})
    assert (settings.update, settings.timeout) == (0.5, 7200.0), "the config overrides only what it gives"


@rows("name, value", [
    ("count", 0), ("count", "four"), ("max_attempts", 0), ("update", 0), ("sleep", "soon"), ("recycle_after", -1),
])  # fmt: skip
def test_an_invalid_attribute_is_refused_with_its_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        type("Wrong", (TaskWorker,), {name: value, "queues": ("q",)})()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Link]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with ours, theirs:
        yield ours, Link(theirs, slot="w-1", kind="w", role="worker", node="n")


def check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (shell, services):
        monkeypatch.setattr(module, "CHECK_EVERY", 0.01)


@pytest.mark.parametrize(("settings", "reason"), [
    (WorkSettings(recycle_after=3), "it has run 3 tasks"),
    (WorkSettings(recycle_age=0.05), "recycle_age"),
])  # fmt: skip
async def test_a_limit_that_is_reached_is_reported_once_with_its_reason(
    settings: WorkSettings, reason: str, ends: tuple[socket.socket, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_often(monkeypatch)
    master, link = ends
    checks: list[str] = []

    def is_drained() -> bool:
        checks.append("drained?")
        return len(checks) > 3

    await recycle_when_due(settings, link, lambda: 3, quiet=lambda: checks.append("quiet"), is_drained=is_drained)
    for kind in ("drain", "recycle"):
        message = receive(master)
        assert message is not None
        assert message["type"] == kind
        assert reason in str(message["reason"])
    assert checks == ["quiet", *["drained?"] * 3], "it claims nothing more before it waits for what runs"


async def test_the_drain_ends_at_its_timeout_with_tasks_still_running(
    ends: tuple[socket.socket, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_often(monkeypatch)
    master, link = ends
    settings = WorkSettings(recycle_after=1, drain_timeout=0.05)
    await recycle_when_due(settings, link, lambda: 1, quiet=lambda: None, is_drained=lambda: False)
    sent = [receive(master), receive(master)]
    assert [message["type"] for message in sent if message] == ["drain", "recycle"]
