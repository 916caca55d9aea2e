"""Active claims: touched whatever the handler does, revoked by an action, or released by a stop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from peerd import Client, Context, Queue, Status
from peerd.runtime.observability.events import ClaimLost
from peerd.testing import eventually_async
from peerd.work import task_runner
from tests.work.harness import Gates, RunnerHarness

pytestmark = pytest.mark.every_database


def of_any_task(*_: object, quarantined: bool, **__: object) -> bool:
    return not quarantined


# ---------------------------------------------------------------- touched


async def test_a_blocked_event_loop_does_not_keep_tasks_from_being_touched(harness: RunnerHarness) -> None:
    queue, touched = Queue("q"), threading.Event()

    def watch(task_id: int) -> None:
        first = harness.world.get(task_id).checked_at
        while not touched.is_set():
            if harness.world.get(task_id).checked_at != first:
                touched.set()

    @queue.task
    async def it(ctx: Context) -> bool:
        threading.Thread(target=watch, args=(ctx.task.id,), daemon=True).start()
        return touched.wait(15)  # blocks the loop

    task_id = harness.world.add(name="it")
    harness.run(queue, update=0.1)
    assert (await harness.until(task_id, Status.DONE)).result == "true"


async def test_a_claimed_task_is_touched_before_the_event_loop_has_received_the_claim(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    database, world = each_harness.database, each_harness.world
    each_harness.run(gates.queue, update=0.1)
    gates.open("")
    for is_loop_blocked in (True, False):
        if is_loop_blocked:
            database.hold_reply("claim", when=of_any_task)  # the answer is in its thread, the loop does not take it
        else:
            database.lose_reply("claim", when=of_any_task)
            database.fail("claimed_by_token", times=None)
        began = len(gates.began)
        task_id = world.add(name="gated")
        first = (await each_harness.until(task_id, Status.WORKING)).checked_at
        await eventually_async(partial(was_touched, each_harness, task_id, first))
        assert len(gates.began) == began
        database.heal()
        assert (await each_harness.until(task_id, Status.DONE)).lease == 1
        assert world.outcomes(task_id) == []


def was_touched(harness: RunnerHarness, task_id: int, since: object) -> bool:
    return harness.world.get(task_id).checked_at != since


# ---------------------------------------------------------------- revoked


async def test_an_action_that_revokes_a_claim_cancels_the_handler(each_harness: RunnerHarness, gates: Gates) -> None:
    world, client = each_harness.world, Client(each_harness.database)
    world.node("b")
    ids = {key: world.add(name="gated", body=f'{{"key": "{key}"}}') for key in ("cancel", "move", "delete")}
    each_harness.run(gates.queue, count=3)
    await eventually_async(lambda: len(gates.began) == 3)
    client.tasks.cancel(ids["cancel"])
    client.tasks.move(ids["move"], "b")
    client.tasks.delete(ids["delete"])
    await eventually_async(lambda: sorted(gates.cancelled) == sorted(ids))
    found = {key: world.find(task_id) for key, task_id in ids.items()}
    statuses = {key: task and task.status for key, task in found.items()}
    assert statuses == {"cancel": Status.CANCELED, "move": Status.PENDING, "delete": None}
    await eventually_async(lambda: len(each_harness.of(ClaimLost)) == 3)


# ---------------------------------------------------------------- stopping


async def test_stopping_claims_no_more_and_lets_what_runs_end(harness: RunnerHarness, gates: Gates) -> None:
    first = harness.world.add(name="gated")
    runner = harness.run(gates.queue)
    await eventually_async(lambda: gates.began)
    stopping = asyncio.create_task(harness.stop(runner))
    await asyncio.sleep(0)
    second = harness.world.add(name="gated")
    gates.open("")
    await stopping
    assert [harness.world.status(task_id) for task_id in (first, second)] == [Status.DONE, Status.PENDING]


async def test_a_task_that_outlives_the_grace_of_a_stop_that_is_hurried_is_released_and_not_counted(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    task_id = each_harness.world.add(name="gated")
    runner = each_harness.run(gates.queue)
    await eventually_async(lambda: gates.began)
    graceful_stop = asyncio.create_task(runner.stop(600.0))
    await asyncio.sleep(0)
    graceful_stop.cancel()
    await asyncio.gather(graceful_stop, return_exceptions=True)
    await each_harness.stop(runner, grace=0.0)
    assert (each_harness.world.status(task_id), each_harness.world.get(task_id).attempts) == (Status.PENDING, 0)
    assert each_harness.world.outcomes(task_id) == ["released"]
    assert gates.cancelled == [""]


async def test_the_task_of_a_thread_is_not_released_before_the_thread_has_ended(harness: RunnerHarness) -> None:
    queue, began, go_on = Queue("q"), threading.Event(), threading.Event()

    @queue.task
    def it(ctx: Context) -> str:
        began.set()
        go_on.wait(20)
        return "gave up" if ctx.cancelled else "whole"

    task_id = harness.world.add(name="it")
    runner = harness.run(queue, update=0.05)
    await eventually_async(began.is_set)
    stopping = asyncio.create_task(harness.stop(runner, grace=0.0))
    touched = harness.world.get(task_id).checked_at
    await eventually_async(lambda: harness.world.get(task_id).checked_at != touched)
    assert harness.world.status(task_id) is Status.WORKING
    assert not stopping.done()
    go_on.set()
    await stopping
    assert harness.world.status(task_id) is Status.PENDING


async def test_a_stop_before_the_first_claim_does_not_wait_for_one(
    harness: RunnerHarness, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "LAST_CLAIM_TIMEOUT", 3600.0)
    runner = harness.run(gates.queue)
    async with asyncio.timeout(60):
        await harness.stop(runner)
