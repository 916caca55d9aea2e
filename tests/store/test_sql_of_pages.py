"""The SQL in docs/limits.md and docs/statistics.md is run as it stands there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.limits import list_limits
from peerd.store.tasks.pages import list_tasks
from peerd.store.time_series import STEPS, bucket_start
from tests.store.world import World

LIMITS_PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
LIMITS_BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_statement_of_the_page_on_limits_works(world: World) -> None:
    found = [one.strip() for block in LIMITS_BLOCK.findall(LIMITS_PAGE) for one in block.split(";\n") if one.strip()]
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


STATISTICS_PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
STATISTICS_BLOCKS = re.findall(r"```sql\n-- ([^:\n]+): [^\n]+\n(.*?);\n```", STATISTICS_PAGE.read_text(), re.DOTALL)
NAMES = {"mysql": "MariaDB", "postgresql": "PostgreSQL", "sqlite": "SQLite"}


def test_the_queries_of_the_page_on_statistics_find_what_was_counted(world: World) -> None:
    totals = AttemptTotals(
        {"done": 18, "dead": 2}, 7_200.0, Histogram.of([0.5] * 18 + [30.0] * 2), Histogram.of([1.0] * 20)
    )
    recent = datetime.now(UTC) - timedelta(minutes=1)
    rows = [BucketRow(step, bucket_start(recent, step), "video", "transcode", 1, 7, totals) for step in STEPS]
    world.run(write_buckets, rows)
    own = [
        statement
        for databases, statement in STATISTICS_BLOCKS
        if NAMES[world.store.name] in databases or databases == "any"
    ]
    assert len(own) == {"mysql": 2, "postgresql": 3, "sqlite": 2}[world.store.name]
    for statement in own:
        text = statement if world.store.name == "sqlite" else statement.replace("%", "%%")
        [found] = world.read(lambda connection, text=text: connection.exec_driver_sql(text).all())  # type: ignore[misc]
        assert float(found[-1]) in (2.0, 32.768)
