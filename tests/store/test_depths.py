"""Depths of queues: what a sample counts, how it is read, made coarser and deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store import queues
from peerd.store.schema.tables import depths
from peerd.store.statistics.depths import (
    ALL_QUEUES,
    QueueDepth,
    latest_depths,
    list_depths,
    roll_up_depths,
    sample_depths,
    write_depths,
)
from peerd.store.statistics.steps import HOUR, SAMPLE, TEN_MINUTES, bucket_start
from tests.store.world import World

DAY = 86_400.0


def sampled(world: World, most: int = 10_000) -> dict[str, QueueDepth]:
    return {depth.queue: depth for depth in world.read(sample_depths, most)}


def write(world: World, at: datetime, queue: str = "q", count: int = 1, **values: Any) -> None:
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
    world.run(write_depths, [])
    [point] = world.read(latest_depths)
    assert (point.queue, point.status, point.count, point.oldest) == (ALL_QUEUES, Status.PENDING, 0, None)


def test_coarse_rows_are_the_greatest_values_and_may_be_made_again(world: World) -> None:
    start = bucket_start(datetime.now(UTC), HOUR) - timedelta(hours=3)
    for minute, count, oldest in ((0, 5, None), (3, 9, 80.0), (9, 2, 120.0), (12, 1, 7.0)):
        write(world, start + timedelta(minutes=minute), count=count, oldest=oldest, at_least=count == 9)
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
