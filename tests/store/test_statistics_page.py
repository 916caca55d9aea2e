"""The SQL of docs/statistics.md runs on the databases that it is for."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.histogram import Histogram
from peerd.store.statistics.buckets import BucketRow, write_buckets
from peerd.store.statistics.steps import STEPS, bucket_start
from tests.store.world import World

pytestmark = [pytest.mark.slow, pytest.mark.every_database]
PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
BLOCKS = re.findall(r"```sql\n-- ([^:\n]+): [^\n]+\n(.*?);\n```", PAGE.read_text(), re.DOTALL)
NAMES = {"mysql": "MariaDB", "postgresql": "PostgreSQL", "sqlite": "SQLite"}


def test_the_queries_of_the_page_find_what_was_counted(world: World) -> None:
    totals = AttemptTotals(
        {"done": 18, "dead": 2}, 7_200.0, Histogram.of([0.5] * 18 + [30.0] * 2), Histogram.of([1.0] * 20)
    )
    recent = datetime.now(UTC) - timedelta(minutes=1)
    rows = [BucketRow(step, bucket_start(recent, step), "video", "transcode", 1, 7, totals) for step in STEPS]
    world.run(write_buckets, rows)
    own = [statement for databases, statement in BLOCKS if NAMES[world.store.name] in databases or databases == "any"]
    assert len(own) == {"mysql": 2, "postgresql": 3, "sqlite": 2}[world.store.name]
    answers = [
        world.read(lambda connection, sql=sql: connection.exec_driver_sql(sql.replace("%", "%%")).all())  # type: ignore[misc]
        if world.store.name != "sqlite"
        else world.read(lambda connection, sql=sql: connection.exec_driver_sql(sql).all())  # type: ignore[misc]
        for sql in own
    ]
    for found in answers:
        assert len(found) == 1
        assert float(found[0][-1]) in (2.0, 32.768)
