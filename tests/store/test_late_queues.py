"""Queues whose tasks wait for too long are found in a sample of the queues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy.engine import Connection

from peerd.store import queues
from peerd.store.late_queues import LateQueue, find_late_queues
from peerd.store.statistics.depths import sample_depths
from tests.store.world import World

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
    world.run(queues.pause, "served")
    assert late(world) == {}
    world.run(queues.pause, "served", 0.0)
    world.insert(queue="tube", ttr=60, created_at=datetime.now(UTC) - timedelta(minutes=5))
    assert list(late(world)) == ["served"], "the other one is of clients, which serve it"
