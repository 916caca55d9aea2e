"""Rows that another session's open transaction has locked: work on other rows continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Context, Queue, Status
from peerd.agent.orphans import OrphanReleaser
from peerd.runtime.observability.events import EventBus, TasksRescued
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.schema.tables import nodes, processes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually_async
from tests.support.server_kinds import ON_SERVERS
from tests.work.harness import Gates, RunnerHarness
from tests.work.test_manager import managing, rounds, settings, silent_node

MAX_UPDATE = 1.0
pytestmark = [
    pytest.mark.every_database,
    pytest.mark.parametrize("migrated_database", ON_SERVERS, indirect=True),
]


@asynccontextmanager
async def held_tasks(harness: RunnerHarness, gates: Gates, count: int = 3) -> AsyncIterator[list[int]]:
    ids = [harness.world.add(name="gated", body=f'{{"key": "{number}"}}') for number in range(count)]
    harness.run(gates.queue, count=count, update=0.2)
    await eventually_async(lambda: len(gates.began) == count)
    yield ids


async def touched_again(harness: RunnerHarness, task_id: int) -> None:
    before = harness.world.column(task_id, "checked_at")
    await eventually_async(lambda: harness.world.column(task_id, "checked_at") > before)


async def silent_for(harness: RunnerHarness, task_id: int, seconds: float) -> None:
    """Wait until a task has not been touched for this time."""
    age = sa.select(tasks.c.checked_at).where(tasks.c.id == task_id)
    before = harness.database.read(lambda connection: connection.execute(age).scalar_one())
    await asyncio.sleep(seconds)
    assert harness.world.column(task_id, "checked_at") == before


async def test_a_locked_row_gets_neither_its_task_nor_its_neighbours_rescued(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    given = settings(max_update=MAX_UPDATE)
    async with held_tasks(each_harness, gates) as ids, managing(each_harness, given):
        with each_harness.world.locking(tasks, ids[1]):
            await silent_for(each_harness, ids[1], 3 * MAX_UPDATE)
        await touched_again(each_harness, ids[1])
        gates.open("0", "1", "2")
        for task_id in ids:
            assert (await each_harness.until(task_id, Status.DONE)).lease == 1
    assert not each_harness.of(TasksRescued)
    assert each_harness.world.attempt_rows() == 0


async def test_outcomes_do_not_wait_for_a_neighbour_whose_row_is_locked(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    async with held_tasks(each_harness, gates, 4) as ids:
        with each_harness.world.locking(tasks, ids[0], ids[1]):
            gates.open("0", "2")
            gates.fail("1", "3")
            for neighbour, status in ((ids[2], Status.DONE), (ids[3], Status.FAILURE)):
                await each_harness.until(neighbour, status)
            later = each_harness.world.add(name="gated", body='{"key": "2"}')
            await each_harness.until(later, Status.DONE)
            assert [each_harness.world.status(task_id) for task_id in ids[:2]] == [Status.WORKING] * 2
        await each_harness.until(ids[0], Status.DONE)
        await each_harness.until(ids[1], Status.FAILURE)
        assert [each_harness.world.outcomes(task_id) for task_id in ids] == [[], ["failure"], [], ["failure"]]


async def test_progress_does_not_wait_for_a_neighbour_whose_row_is_locked(each_harness: RunnerHarness) -> None:
    queue, go_on, ends = Queue("q"), asyncio.Event(), asyncio.Event()

    @queue.task
    async def it(ctx: Context) -> None:
        await go_on.wait()
        await ctx.progress(0.5)
        await ends.wait()

    ids = [each_harness.world.add(name="it") for _ in range(2)]

    def progress_of(task_id: int) -> object:
        return each_harness.world.get(task_id).progress

    each_harness.run(queue, count=2)
    for task_id in ids:
        await each_harness.until(task_id, Status.WORKING)
    with each_harness.world.locking(tasks, ids[0]):
        go_on.set()
        await eventually_async(lambda: progress_of(ids[1]) == 0.5)
        assert progress_of(ids[0]) is None
    await eventually_async(lambda: progress_of(ids[0]) == 0.5)
    ends.set()


async def test_tasks_are_touched_while_the_row_of_their_process_is_locked(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    async with held_tasks(each_harness, gates, 1) as ids:
        process = each_harness.world.get(ids[0]).process_id
        assert process is not None
        with each_harness.world.locking(processes, process):
            for _ in range(3):
                await touched_again(each_harness, ids[0])
        gates.open("0")
        await each_harness.until(ids[0], Status.DONE)


async def test_a_manager_does_its_round_although_rows_that_it_would_write_are_locked(
    each_harness: RunnerHarness,
) -> None:
    world = each_harness.world
    due = [world.insert(status="failure", start_at=seconds_from_now(-5.0)) for _ in range(2)]
    ahead = [world.insert(start_at=seconds_from_now(3600.0)) for _ in range(2)]
    ended = [world.insert(status="done", finished_at=seconds_from_now(-7200.0)) for _ in range(2)]
    silent = silent_node(each_harness, "silent")
    with each_harness.world.locking(tasks, due[0], ahead[0], ended[0]), each_harness.world.locking(nodes, silent):
        async with managing(each_harness, settings(max_update=60.0, max_completed=3600.0)):
            await each_harness.until(due[1], Status.PENDING)
            await each_harness.until(ahead[1], Status.SCHEDULED)
            await eventually_async(lambda: world.find(ended[1]) is None)
            await rounds(each_harness, 3)
    assert [world.status(task_id) for task_id in (due[0], ahead[0])] == [Status.FAILURE, Status.PENDING]


async def test_a_dead_processs_tasks_are_released_although_one_of_them_is_locked(each_harness: RunnerHarness) -> None:
    world, acknowledged = each_harness.world, list[str]()
    claimers = [world.claimer(), world.claimer()]
    held = [(world.add(), world.add()) for _ in claimers]
    for claimer in claimers:
        world.take(claimer, 2)
    threads = DatabaseThreads(each_harness.database)
    events = EventBus(each_harness.events)
    outages = OutageTracker(events, asyncio.get_running_loop().time)
    deaths = OrphanReleaser(
        threads, world.incarnation(), lambda sent: acknowledged.append(str(sent["id"])), outages, events
    )
    running = asyncio.create_task(deaths.run())
    with each_harness.world.locking(tasks, held[0][0]):
        for number, claimer in enumerate(claimers):
            deaths.receive(death_report(claimer.process_id, number))
        for task_id in (held[0][1], *held[1]):
            await each_harness.until(task_id, Status.FAILURE)
        await eventually_async(lambda: acknowledged == ["1"])
    await each_harness.until(held[0][0], Status.FAILURE)
    await eventually_async(lambda: acknowledged == ["1", "0"])
    running.cancel()
    assert all(world.outcomes(task_id) == ["crash"] for pair in held for task_id in pair)


def death_report(process_id: int, number: int) -> dict[str, Any]:
    cause = {"kind": "signal", "status": 9, "text": "was killed by signal 9"}
    about = {"slot": "w-1", "pid": 1, "cause": cause, "expected": False, "id": str(number)}
    return {**about, "identity": {"process_id": process_id}}
