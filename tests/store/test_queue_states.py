"""What is shown of queues: counts that end at a limit, the age of the oldest pending task, and which ones are late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store import queue_states, queues
from peerd.store.jobs.statistics import count_unfinished_up_to
from peerd.store.queue_states import LateQueue, find_late_queues, sample_depths
from peerd.store.schema.tables import tasks
from peerd.store.tasks import counts
from tests.store.world import World, at_once

NOW = datetime.now(UTC).replace(microsecond=0)


def add_rows(world: World, *rows: dict[str, Any]) -> None:
    given = [{"queue": "q", "status": "pending", "created_at": NOW, "updated_at": NOW} | row for row in rows]

    def insert(connection: sa.Connection) -> None:
        for row in given:
            connection.execute(sa.insert(tasks), row)

    world.run(insert)


def test_a_count_ends_at_its_limit_and_says_so(world: World) -> None:
    for status in (Status.PENDING, Status.SCHEDULED, Status.BURIED, Status.DEAD):
        add_rows(world, *({"status": status, "finished_at": NOW if status is Status.DEAD else None} for _ in range(7)))
    add_rows(world, {"limit_key": "k"}, {"queue": "other"}, {"queue": "other", "status": "failure", "start_at": NOW})
    for _ in range(3):
        world.task_in(Status.WORKING, queue="q")
    found = {state.name: state for state in world.read(queue_states.list_queues, most=5)}
    assert found["q"].counts == {
        Status.PENDING: 6,  # five without a limit key, and one with one
        Status.SCHEDULED: 5,
        Status.BURIED: 5,
        Status.WORKING: 3,
        Status.DEAD: 5,
    }
    assert found["q"].at_least == [Status.SCHEDULED, Status.PENDING, Status.DEAD, Status.BURIED]
    assert (found["other"].counts, found["other"].at_least) == ({Status.PENDING: 1, Status.FAILURE: 1}, [])
    [exact, _] = sorted(world.read(queue_states.list_queues), key=lambda state: state.name, reverse=True)
    assert exact.at_least == []
    assert sum(exact.counts.values()) == 7 * 4 + 1 + 3


def test_the_oldest_pending_task_is_found_whatever_its_place_in_the_queue(world: World) -> None:
    def ago(minutes: int) -> datetime:
        return NOW - timedelta(minutes=minutes)

    later = datetime.now(UTC) + timedelta(hours=1)
    add_rows(world, {"created_at": NOW, "start_at": later})
    assert [world.read(counts.oldest_pending, queue) for queue in ("q", "nowhere")] == [None, None], "it is not due yet"
    add_rows(world, {"priority": 20, "created_at": ago(1)}, {"priority": 20, "created_at": ago(2)})
    assert world.read(counts.oldest_pending, "q") == ago(2)
    for minutes, place in (
        (10, {"priority": -5}),
        (20, {"failures": 2}),
        (30, {"node_id": 7}),
        (40, {"crashes": 1}),
        (50, {"limit_key": "k", "priority": -9}),
    ):
        add_rows(world, {"created_at": ago(minutes), **place}, {"created_at": ago(minutes - 9), **place})
        assert world.read(counts.oldest_pending, "q") == ago(minutes)


def test_the_search_for_the_oldest_has_a_limit(world: World) -> None:
    add_rows(world, *({"priority": -number, "created_at": NOW - timedelta(minutes=number)} for number in range(60)))
    found = world.read(counts.oldest_pending, "q")
    assert found == NOW - timedelta(minutes=counts.MOST_JUMPS - 1)


def test_a_count_of_what_has_not_ended_ends_at_the_limit(world: World) -> None:
    for status in Status:
        world.task_in(status)
    world.add(limit_key="a")
    assert world.read(count_unfinished_up_to, "q", 100) == len(Status) - len(FINISHED) + 1
    for status in (Status.PENDING, Status.SCHEDULED, Status.BURIED):
        queue = str(status)
        world.execute(sa.insert(tasks), [{"queue": queue, "status": queue}] * 30)
        world.add(queue)
        counts = [world.read(count_unfinished_up_to, queue, most) for most in (1, 5, 30, 31, 32, 1000)]
        assert counts == [1, 5, 30, 31, 31, 31], status


MINUTE = 60.0


def late(world: World, longer_than: float = 10 * MINUTE, unserved_after: float = MINUTE) -> dict[str, LateQueue]:
    def find(connection: Connection) -> list[LateQueue]:
        return find_late_queues(connection, sample_depths(connection), longer_than, unserved_after)

    return {queue.name: queue for queue in world.read(find)}


def add_waiting(world: World, queue: str, minutes: float) -> int:
    return world.insert(queue=queue, created_at=datetime.now(UTC) - timedelta(minutes=minutes))


def serve(world: World, queue: str) -> None:
    """Let it be known, as a worker process does when it starts."""
    world.run(queues.pause, queue)
    world.run(queues.resume, queue)


def test_a_queue_is_late_when_its_oldest_task_has_been_due_for_long(world: World) -> None:
    serve(world, "served")
    add_waiting(world, "served", 9)
    add_waiting(world, "unserved", 2)
    add_waiting(world, "new", 0.5)
    found = late(world)
    assert list(found) == ["unserved"]
    assert not found["unserved"].is_served
    assert 2 * MINUTE <= found["unserved"].age < 3 * MINUTE
    add_waiting(world, "served", 11)
    found = late(world)
    assert (sorted(found), found["served"].is_served) == (["served", "unserved"], True)


def test_a_paused_queue_is_not_late_until_its_pause_is_over(world: World) -> None:
    add_waiting(world, "served", 60)
    at_once([partial(world.run, queues.pause, "served")] * 6)  # each for the first time
    assert late(world) == {}
    world.run(queues.pause, "served", 0.0)
    world.insert(queue="tube", ttr=60, created_at=datetime.now(UTC) - timedelta(minutes=5))
    assert list(late(world)) == ["served"], "the other one is of clients, which serve it"
