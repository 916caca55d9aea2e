"""On filled tables, the time series are read by their primary keys, whatever else they hold, and tasks not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.histogram import Histogram
from peerd.store.connection.database import Database
from peerd.store.schema.tables import depths
from peerd.store.statistics.buckets import BucketRow, write_buckets
from peerd.store.statistics.depths import latest_depths
from peerd.store.statistics.rollup import latest_bucket, purge_depths, purge_statistics, roll_up
from peerd.store.statistics.steps import HOUR, MINUTE, SAMPLE, TEN_MINUTES, bucket_start
from tests.store.plans import analyze, problems_of_plans
from tests.store.world import World

pytestmark = [pytest.mark.slow, pytest.mark.every_database]


def fill(store: Database) -> None:
    """A day of minutes and of samples, three days of ten minutes and of hours."""
    present = bucket_start(datetime.now(UTC), MINUTE)
    totals = AttemptTotals({"done": 3}, 1.0, Histogram.of([0.1]), Histogram.of([0.2]))
    for step, count in ((MINUTE, 1440), (TEN_MINUTES, 432), (HOUR, 72)):
        moments = [bucket_start(present, step) - timedelta(seconds=step * number) for number in range(count)]
        rows = [BucketRow(step, at, "q", name, 1, 7, totals) for at in moments for name in ("a", "b", "c")]
        store.run(write_buckets, rows)
    row = {"step": SAMPLE, "status": "pending", "count": 1}
    moments = [present - timedelta(seconds=60 * number) for number in range(1440)]
    samples = [row | {"at": at, "queue": queue} for at in moments for queue in ("", "p", "q")]
    store.run(lambda connection: connection.execute(sa.insert(depths), samples).close())
    analyze(store, "statistics", "depths")


def test_time_series_are_read_by_their_key_and_no_task_is_read(world: World) -> None:
    store = world.store
    fill(store)
    world.node("a")
    with Client(store) as client:
        operations: list[Callable[[], object]] = [
            lambda: client.statistics.summary("5m", by="handler"),
            lambda: client.statistics.summary("1d", by="node"),
            lambda: client.statistics.series("1h", queue="q", name="a"),
            lambda: client.statistics.series("1d", by="queue"),
            lambda: client.statistics.series("1d", by="handler", most=2),
            lambda: client.statistics.depths("1h", queue="q"),
            client.statistics.overview,
            lambda: store.run(roll_up, TEN_MINUTES, datetime.now(UTC) - timedelta(hours=2), 86_400.0),
            lambda: store.read(lambda connection: connection.execute(sa.select(latest_bucket(MINUTE))).scalar()),
            lambda: store.read(latest_depths),
            lambda: store.run(purge_statistics, MINUTE, 3 * 3600.0, 100),
            lambda: store.run(purge_depths, SAMPLE, 3 * 3600.0, 100),
        ]
        client.now()  # the tables are checked
        for operation in operations:
            assert not problems_of_plans(store, operation, "statistics", "depths", "tasks", may_sort=True)
