from __future__ import annotations

from typing import Any

import pytest

from peerd import TaskWorker, Worker
from peerd.config.reading.models import parse_section
from peerd.config.settings import WorkerSettings
from peerd.work.worker import EffectiveWorkerSettings
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
    assert Worker().settings == EffectiveWorkerSettings()


def test_the_config_overrides_only_the_settings_that_it_gives() -> None:
    values = {"worker": "m:Video", "count": 2, "delay_ratio": "10s", "timeout": None, "options": {"folder": "/srv"}}
    settings = EffectiveWorkerSettings.of(Video(), parse_section(WorkerSettings, values))
    assert (settings.count, settings.delay_ratio) == (2, 10.0)
    assert (settings.update, settings.timeout) == (0.5, 7200.0)
    assert settings.options == {"folder": "/srv"}


@rows(
    "name, value",
    [("count", 0), ("count", "four"), ("max_attempts", 0), ("update", 0), ("sleep", "soon"), ("recycle_after", -1)],
)
def test_an_invalid_attribute_is_refused_with_its_name(name: str, value: Any) -> None:
    wrong = type("Wrong", (TaskWorker,), {name: value, "queues": ("q",)})
    with pytest.raises(ValueError, match=name):
        wrong()
