"""The SQL in docs/limits.md is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peerd.store.limits.definitions import list_limits
from peerd.store.tasks.pages import list_tasks
from tests.store.world import World

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_statement_works(world: World) -> None:
    found = [one.strip() for block in BLOCK.findall(PAGE) for one in block.split(";\n") if one.strip()]
    assert len(found) >= 10
    for one in found:
        with world.store.engine.begin() as connection:
            connection.exec_driver_sql(one if world.store.name == "sqlite" else one.replace("%", "%%"))
    assert [(limit.queue, limit.key, limit.running) for limit in world.read(list_limits)] == [
        ("media", "*", 1),
        ("uploads", "", 50),
        ("uploads", "*", 3),
        ("uploads", "acme", 10),
    ]
    assert {task.limit_key for task in world.read(list_tasks, limit=10).items} == {"a.mp4", "1"}
