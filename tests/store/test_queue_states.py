"""What is shown of queues: counts that end at a limit, and the age of the oldest pending task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store import queue_states
from peerd.store.schema.tables import tasks
from peerd.store.tasks import counts
from tests.store.world import World

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
        (20, {"attempts": 2}),
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
