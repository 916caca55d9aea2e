"""Buckets of attempts and samples of depths: each counts once, coarser ones are made of them, and the old ones go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peerd import Client
from peerd.domain.attempt_totals import OUTCOMES, AttemptTotals, Histogram
from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.store import attempt_series, queues
from peerd.store.attempt_series import (
    BucketFilter,
    BucketRow,
    Dimension,
    counters_of,
    latest_bucket,
    purge_statistics,
    roll_up,
    sum_buckets,
    write_buckets,
)
from peerd.store.connection.database import Database
from peerd.store.queue_states import (
    ALL_QUEUES,
    QueueDepth,
    latest_counts,
    latest_depths,
    list_depths,
    purge_depths,
    roll_up_depths,
    sample_depths,
    write_depths,
)
from peerd.store.schema.tables import depths, statistics
from peerd.store.time_series import HOUR, MINUTE, SAMPLE, TEN_MINUTES, Tile, bucket_start
from tests.store.plans import analyze, problems_of_plans
from tests.store.world import World, at_once

DAY = 86_400.0
durations = st.lists(st.floats(0.0, 200_000.0), max_size=8)
totals = st.builds(
    AttemptTotals,
    st.dictionaries(st.sampled_from(OUTCOMES), st.integers(0, 10**6)),
    st.floats(0.0, 600.0),
    durations.map(Histogram.of),
    durations.map(Histogram.of),
)


def attempts(done: int = 1, failed: int = 0, wait: float = 0.5, run: float = 0.1) -> AttemptTotals:
    number = done + failed
    return AttemptTotals(
        {"done": done, "failed": failed}, 1.5, Histogram.of([wait] * number), Histogram.of([run] * number)
    )


def row(at: datetime, found: AttemptTotals, **key: Any) -> BucketRow:
    values: dict[str, Any] = {"step": MINUTE, "queue": "q", "name": "n", "node_id": 1, "process_id": 7} | key
    return BucketRow(at=at, totals=found, **values)


class Present:
    """The minute in which a test began, so that one that passes meanwhile changes nothing."""

    minute = bucket_start(datetime.now(UTC), MINUTE)


@pytest.fixture(autouse=True)
def present() -> None:
    Present.minute = bucket_start(datetime.now(UTC), MINUTE)


def minutes_ago(number: int) -> datetime:
    return Present.minute - timedelta(minutes=number)


def write(store: Database, *rows: BucketRow) -> None:
    store.run_short(write_buckets, rows)


def read(
    store: Database, by: tuple[Dimension, ...] = (), step: int = MINUTE, hours: float = 24.0, **wanted: Any
) -> dict[tuple[Any, ...], AttemptTotals]:
    end = datetime.now(UTC) + timedelta(hours=1)
    tile = Tile(step, end - timedelta(hours=hours + 1), end)
    return dict(store.read(lambda connection: list(sum_buckets(connection, tile, by, BucketFilter(**wanted)))))


def same(one: AttemptTotals, other: AttemptTotals) -> bool:
    return all(abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(counters_of(one), counters_of(other), strict=True))


def test_a_write_that_is_repeated_or_late_counts_once(world: World) -> None:
    at = minutes_ago(1)
    early, late = row(at, attempts(done=3)), row(at, attempts(done=8, failed=2))
    for written in (early, late, late, early):
        write(world.store, written)
    [found] = read(world.store).values()
    assert (found.outcomes["done"], found.outcomes["failed"], found.wait.count) == (8, 2, 10)
    assert world.count(statistics) == 1


def test_processes_and_nodes_are_added_up(world: World) -> None:
    at = minutes_ago(1)
    write(world.store, row(at, attempts(3)), row(at, attempts(4), process_id=8), row(at, attempts(5), node_id=2))
    write(world.store, row(at, attempts(6), queue="other", name="späť '%s\\"))
    assert {key[0]: found.done for key, found in read(world.store, ("node_id",)).items()} == {1: 13, 2: 5}
    assert {key: found.done for key, found in read(world.store, ("queue", "name")).items()} == {
        ("other", "späť '%s\\"): 6,
        ("q", "n"): 12,
    }
    assert [found.done for found in read(world.store, queue="q", node_id=2).values()] == [5]
    assert read(world.store, queue="none") == {}


def test_a_series_is_of_the_groups_with_the_most_attempts(world: World) -> None:
    for minutes, done in ((1, {"a": 6, "b": 9, "c": 1}), (5, {"a": 1, "c": 9})):
        at = minutes_ago(minutes)
        write(world.store, *(row(at, attempts(number), name=name) for name, number in done.items()))
    write(world.store, row(minutes_ago(1), attempts(50), queue="other", name="a"))
    with Client(world.store) as client:
        every = client.statistics.series("1h", by="handler", queue="q")
        assert {point.name for point in every} == {"a", "b", "c"}
        greatest = client.statistics.series("1h", by="handler", queue="q", most=2)
        assert greatest == [point for point in every if point.name in {"b", "c"}]
        assert {point.queue for point in client.statistics.series("1h", by="queue", most=1)} == {"other"}
        assert client.statistics.series("1h", most=1) == client.statistics.series("1h")
        assert client.statistics.series("1h", by="handler", queue="none", most=1) == []


def test_a_series_of_more_groups_than_the_limit_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_series, "MOST_GROUPS", 2)
    write(world.store, *(row(minutes_ago(1), attempts(), name=name) for name in "ab"))
    with Client(world.store) as client:
        assert {point.name for point in client.statistics.series("1h", by="handler")} == {"a", "b"}
        write(world.store, row(minutes_ago(1), attempts(), name="c"))
        with pytest.raises(InvalidFilter, match="more than 2 rows: ask for less time"):
            client.statistics.series("1h", by="handler")


def roll_up_all(store: Database, step: int, kept: float = DAY) -> int:
    """Until nothing more is complete; how many spans were computed."""
    since, spans = datetime(1970, 1, 2, tzinfo=UTC), 0
    while (made := store.run(roll_up, step, since, kept)).after is not None:
        since, spans = made.after, spans + 1
    return spans


@settings(max_examples=5, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.tuples(st.integers(20, 120), st.integers(1, 3), st.integers(1, 2), totals), max_size=12))
def test_a_coarse_bucket_is_the_merge_of_the_fine_ones(
    world: World, parts: list[tuple[int, int, int, AttemptTotals]]
) -> None:
    world.empty()
    expected: dict[tuple[datetime, int], AttemptTotals] = {}
    fine: dict[tuple[datetime, int, int], AttemptTotals] = {}
    for minutes, process, node, found in parts:
        fine[minutes_ago(minutes), process, node] = found
    for (at, process, node), found in fine.items():
        write(world.store, row(at, found, process_id=process, node_id=node))
        expected.setdefault((bucket_start(at, TEN_MINUTES), node), AttemptTotals()).merge(found)
    roll_up_all(world.store, TEN_MINUTES)
    made = read(world.store, ("at", "node_id", "process_id"), TEN_MINUTES)
    assert set(made) == {(at, node, 0) for at, node in expected}
    assert all(same(made[at, node, 0], found) for (at, node), found in expected.items())


def test_a_fine_row_that_comes_late_is_in_the_coarse_one_after_the_next_pass(world: World) -> None:
    write(world.store, row(minutes_ago(0), attempts(5)))
    made = world.run(roll_up, TEN_MINUTES, minutes_ago(200), DAY)
    assert (made.rows, made.after, read(world.store, step=TEN_MINUTES)) == (0, None, {}), "its span is not over"
    write(world.store, row(minutes_ago(30), attempts(5)))
    roll_up_all(world.store, TEN_MINUTES)
    write(world.store, row(minutes_ago(30), attempts(7), process_id=8))
    roll_up_all(world.store, TEN_MINUTES)
    [found] = read(world.store, step=TEN_MINUTES).values()
    assert found.done == 12


def test_nodes_that_roll_up_at_once_make_the_same_rows(world: World) -> None:
    write(
        world.store,
        *(row(minutes_ago(number), attempts(1), name=f"n{name}") for number in range(15, 135) for name in range(5)),
    )
    at_once([partial(roll_up_all, world.store, TEN_MINUTES)] * 4)
    roll_up_all(world.store, HOUR)
    hours = read(world.store, ("at",), HOUR)
    assert {key[0].minute for key in hours} == {0}
    assert sum(found.done for found in hours.values()) % 5 == 0
    found = read(world.store, ("name",), TEN_MINUTES)
    assert {key[0]: totals.done for key, totals in found.items()} == {f"n{name}": 120 for name in range(5)}


def test_what_may_be_purged_in_part_is_not_rolled_up_again(world: World) -> None:
    """An older bucket keeps its counts although its fine rows go."""
    write(world.store, *(row(minutes_ago(number), attempts(1)) for number in range(100, 160)))
    roll_up_all(world.store, TEN_MINUTES)
    before = {key: found.done for key, found in read(world.store, ("at",), TEN_MINUTES).items()}
    assert world.run(purge_statistics, MINUTE, 7_500.0) > 0
    roll_up_all(world.store, TEN_MINUTES, 7_500.0)
    assert {key: found.done for key, found in read(world.store, ("at",), TEN_MINUTES).items()} == before


def test_old_rows_are_purged_by_their_step_and_in_batches(world: World) -> None:
    write(world.store, *(row(minutes_ago(number), attempts(1)) for number in range(200)))
    write(world.store, row(minutes_ago(199), attempts(1), step=TEN_MINUTES))
    deleted = []
    while count := world.run(purge_statistics, MINUTE, 6_000.0, 40):
        deleted.append(count)
    assert max(deleted) <= 41
    left = world.rows(sa.select(statistics.c.at, statistics.c.step))
    assert {found.step for found in left} == {MINUTE, TEN_MINUTES}
    assert min(found.at for found in left if found.step == MINUTE) >= minutes_ago(101)
    assert 99 <= len(left) - 1 <= 101


def sampled(world: World, most: int = 10_000) -> dict[str, QueueDepth]:
    return {depth.queue: depth for depth in world.read(sample_depths, most)}


def write_sample(world: World, at: datetime, queue: str = "q", count: int = 1, **values: Any) -> None:
    row = {"step": SAMPLE, "at": at, "queue": queue, "status": "pending", "count": count, "at_least": False} | values
    world.execute(sa.insert(depths).values(**row))


def test_a_sample_has_all_unfinished_tasks_and_the_age_of_the_oldest(world: World) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    world.insert(queue="q", created_at=long_ago, priority=-5)
    for _ in range(3):
        world.add("q")
    world.take_one(world.claimer("q"))
    world.add("later", start_in=3600.0)
    world.task_in(Status.BURIED, queue="aside")
    world.insert(queue="over", status="done", finished_at=datetime.now(UTC))
    world.run(queues.pause, "closed")
    found = sampled(world)
    assert set(found) == {"q", "later", "aside", "closed"}
    assert found["q"].counts == {Status.PENDING: 3, Status.WORKING: 1}
    assert 300 <= (found["q"].oldest or 0) < 330
    assert (found["later"].counts, found["later"].oldest) == ({Status.SCHEDULED: 1}, None)
    assert found["aside"].counts == {Status.BURIED: 1}
    assert (found["closed"].paused, found["closed"].known, found["closed"].counts) == (True, True, {})
    assert not found["later"].known


def test_a_sample_counts_to_a_limit_and_says_so(world: World) -> None:
    for _ in range(5):
        world.add("q")
    [depth] = sampled(world, most=3).values()
    assert (depth.counts, set(depth.at_least)) == ({Status.PENDING: 3}, {Status.PENDING})
    world.run(write_depths, [depth])
    assert all(point.at_least for point in world.read(latest_depths))


def test_the_latest_sample_has_each_queue_and_all_of_them(world: World) -> None:
    assert world.read(latest_depths) == []
    world.add("a")
    world.insert(queue="b", created_at=datetime.now(UTC) - timedelta(minutes=5))
    world.add("b", start_in=3600.0)
    world.run(write_depths, world.read(sample_depths))
    points = {(point.queue, point.status): point for point in world.read(latest_depths)}
    assert {key: point.count for key, point in points.items()} == {
        ("a", Status.PENDING): 1,
        ("b", Status.PENDING): 1,
        ("b", Status.SCHEDULED): 1,
        (ALL_QUEUES, Status.PENDING): 2,
        (ALL_QUEUES, Status.SCHEDULED): 1,
    }
    assert points[ALL_QUEUES, Status.PENDING].oldest == points["b", Status.PENDING].oldest
    assert points["b", Status.SCHEDULED].oldest is None
    world.insert(queue="b", status="dead", finished_at=datetime.now(UTC))
    for only, statuses, wanted in (
        (None, list(Status), {Status.PENDING: 2, Status.SCHEDULED: 1, Status.DEAD: 1}),
        (["b"], list(Status), {Status.PENDING: 1, Status.SCHEDULED: 1, Status.DEAD: 1}),
        (["a"], [Status.DEAD, Status.PENDING], {Status.PENDING: 1}),
        (None, [Status.DEAD], {Status.DEAD: 1}),
    ):
        found = world.read(latest_counts, only, statuses)
        assert (found.counts, found.at_least) == (wanted, frozenset()), (only, statuses)
    world.run(write_depths, [])
    [point] = world.read(latest_depths)
    assert (point.queue, point.status, point.count, point.oldest) == (ALL_QUEUES, Status.PENDING, 0, None)


def test_coarse_rows_are_the_greatest_values_and_may_be_made_again(world: World) -> None:
    start = bucket_start(datetime.now(UTC), HOUR) - timedelta(hours=3)
    for minute, count, oldest in ((0, 5, None), (3, 9, 80.0), (9, 2, 120.0), (12, 1, 7.0)):
        write_sample(world, start + timedelta(minutes=minute), count=count, oldest=oldest, at_least=count == 9)
    for _ in range(2):
        since: datetime | None = start - timedelta(hours=1)
        while since is not None:
            since = world.run(roll_up_depths, TEN_MINUTES, since, DAY).after
        points = world.read(list_depths, TEN_MINUTES, start, "q", 100)
        assert [(point.at - start, point.count, point.oldest, point.at_least) for point in points] == [
            (timedelta(0), 9, 120.0, True),
            (timedelta(minutes=10), 1, 7.0, False),
        ]
    assert world.run(roll_up_depths, HOUR, start, DAY).rows == 1
    [point] = world.read(list_depths, HOUR, start, "q", 100)
    assert (point.count, point.oldest) == (9, 120.0)


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


@pytest.mark.slow
@pytest.mark.every_database
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
            client.queues.prospects,
            lambda: store.run(roll_up, TEN_MINUTES, datetime.now(UTC) - timedelta(hours=2), 86_400.0),
            lambda: store.read(lambda connection: connection.execute(sa.select(latest_bucket(MINUTE))).scalar()),
            lambda: store.read(latest_depths),
            lambda: store.run(purge_statistics, MINUTE, 3 * 3600.0, 100),
            lambda: store.run(purge_depths, SAMPLE, 3 * 3600.0, 100),
        ]
        client.now()  # the tables are checked
        for operation in operations:
            others = ["tasks"] if operation != client.statistics.overview else []  # it counts the running and dead ones
            assert not problems_of_plans(store, operation, "statistics", "depths", *others, may_sort=True)
