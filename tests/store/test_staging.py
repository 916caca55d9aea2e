"""Due maintenance: what falls due next, and staging of due tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import sqlalchemy as sa

from peerd.agent.due_task_stager import TAKE_OVER_AFTER, DueTaskStager
from peerd.domain.lifecycle import Status
from peerd.domain.ring import TasksAvailable, TaskScheduled
from peerd.doorbell.datagram import ClusterClock
from peerd.doorbell.notifier import nodes_without_endpoint, read_endpoints, write_endpoint
from peerd.store.chore_batches import stage_all_due
from peerd.store.connection.database import DatabaseThreads
from peerd.store.due import find_next_due, read_due_maintenance
from peerd.store.outcomes import database_now
from peerd.store.schema.tables import nodes
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually_async
from tests.store.world import World


def test_an_empty_table_has_nothing_ahead(world: World) -> None:
    ahead = world.read(find_next_due)
    assert (ahead.next_at, ahead.first_node) == (None, None)
    due_maintenance = world.read(read_due_maintenance)
    found = {name for name in due_maintenance.__struct_fields__ if getattr(due_maintenance, name)}
    assert found == {"now"}


def test_the_next_moment_is_that_of_the_first_scheduled_task_or_failure(world: World) -> None:
    world.add(start_in=3600.0)
    second = world.add(start_in=60.0)
    assert world.read(find_next_due).next_at == world.get(second).start_at
    world.add(priority=99)
    failed = world.take_one()
    world.fail(failed, retry_in=5.0)
    assert world.read(find_next_due).next_at == world.get(failed.id).start_at
    due = world.read(read_due_maintenance)
    assert (due.scheduled, due.failure) == (world.get(second).start_at, world.get(failed.id).start_at)


def test_what_is_due_is_staged_and_nothing_else(world: World) -> None:
    due = [world.add(queue=queue, start_in=60.0) for queue in ("mail", "video", "video")]
    later = world.add(queue="later", start_in=120.0)
    for task_id in due:
        world.set(task_id, start_at=seconds_from_now(-1.0))
    world.add(queue="failed", priority=99)
    failed = world.take_one(world.claimer("failed"))
    world.fail(failed, retry_in=0.0)
    staged = world.run(stage_all_due)
    assert (staged.count, staged.queues) == (4, ("failed", "mail", "video"))
    assert {world.get(task_id).status for task_id in (*due, failed.id)} == {Status.PENDING}
    assert world.get(later).status is Status.SCHEDULED
    assert world.run(stage_all_due).count == 0
    due = [world.add(start_in=60.0) for _ in range(5)]
    for index, task_id in enumerate(due):
        world.set(task_id, start_at=seconds_from_now(-60.0 + index))
    assert world.run(stage_all_due, 2).count == 2
    assert [world.status(task_id) for task_id in due[1:3]] == [Status.PENDING, Status.SCHEDULED], "longest due first"


def test_due_maintenance_shows_what_the_chores_wait_for(world: World) -> None:
    ended = {status: world.task_in(status) for status in (Status.DONE, Status.DEAD, Status.CANCELED)}
    working = world.get(world.task_in(Status.WORKING))
    late = world.insert(finish_at=seconds_from_now(60.0))
    ahead = world.insert(start_at=seconds_from_now(3600.0))
    due_maintenance = world.read(read_due_maintenance)
    found = (due_maintenance.done, due_maintenance.dead, due_maintenance.canceled)
    assert found == tuple(world.get(task_id).finished_at for task_id in ended.values())
    assert due_maintenance.oldest_touch == working.checked_at
    assert (due_maintenance.pending, due_maintenance.ahead) == (world.get(late).finish_at, world.get(ahead).start_at)
    assert due_maintenance.oldest_heartbeat is not None
    assert abs(due_maintenance.now - due_maintenance.oldest_heartbeat) < timedelta(minutes=5)


def test_the_endpoints_are_those_of_active_nodes_that_have_written_one(world: World) -> None:
    for name in ("listening", "silent", "gone"):
        world.node(name)
        world.run(write_endpoint, name, world.incarnation(name), None if name == "silent" else "10.0.0.7:7070")
    gone = sa.update(nodes).where(nodes.c.name == "gone").values(active=False)
    assert world.execute(gone) == 1
    [endpoint], _ = world.read(read_endpoints)
    assert (endpoint.incarnation, endpoint.host, endpoint.port) == (world.incarnation("listening"), "10.0.0.7", 7070)
    assert world.read(nodes_without_endpoint) == ["silent"]


@asynccontextmanager
async def staging(world: World, node: str) -> AsyncIterator[tuple[DueTaskStager, list[TasksAvailable]]]:
    """The stager of a node that runs, and the rings that it has sent."""
    rung: list[TasksAvailable] = []
    threads = DatabaseThreads(world.store, threads=1)
    stager = DueTaskStager(threads, world.node(node), rung.append, ClusterClock(), "life", lambda _: None)
    running = asyncio.create_task(stager.run())
    try:
        yield stager, rung
    finally:
        running.cancel()
        await asyncio.wait([running])
        threads.close()


async def test_the_first_node_stages_a_task_the_moment_it_falls_due(world: World) -> None:
    task_id = world.add(queue="video", start_in=0.5)
    async with staging(world, "first") as (_, rung):
        await eventually_async(lambda: rung == [TasksAvailable(("video",))])
    assert world.get(task_id).status is Status.PENDING


async def test_another_node_stages_a_task_a_little_later_when_the_first_one_does_not(world: World) -> None:
    world.node("first")
    task_id = world.add(queue="video", start_in=0.3)
    due = world.get(task_id).start_at
    assert due is not None
    async with staging(world, "second") as (_, rung):
        await eventually_async(lambda: rung == [TasksAvailable(("video",))])
    assert world.read(database_now) >= due + timedelta(seconds=TAKE_OVER_AFTER)


async def test_what_falls_due_sooner_than_what_is_known_is_rung_for(world: World) -> None:
    world.add(queue="later", start_in=3600.0)
    async with staging(world, "first") as (stager, rung):
        await eventually_async(lambda: stager._clock_pair is not None)
        task_id = world.add(queue="soon", start_in=0.2)
        moment = world.get(task_id).start_at
        assert moment is not None
        stager.receive(TaskScheduled(at=moment.timestamp()))
        await eventually_async(lambda: rung == [TasksAvailable(("soon",))])
        world.add(queue="sooner", start_in=0.2)
        stager.receive(TaskScheduled(within=0.2))
        await eventually_async(lambda: rung[1:] == [TasksAvailable(("sooner",))])
