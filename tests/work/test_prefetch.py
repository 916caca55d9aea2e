"""Tasks that a process claims ahead of its executor slots, and outcomes that are not written yet."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from peerd import Queue, Status
from peerd.domain.bulk import BulkCancel
from peerd.runtime.observability.events import ClaimLost
from peerd.store.tasks.actions import act_on_task
from peerd.testing import eventually_async
from peerd.work import executor_slots
from peerd.work.executor_slots import PrefetchEstimate
from tests.work.harness import Gates, RunnerHarness

pytestmark = pytest.mark.one_database


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tasks are claimed ahead, until that proves wrong."""
    wrong: set[PrefetchEstimate] = set()

    def reset(prefetch: PrefetchEstimate) -> None:
        wrong.add(prefetch)

    monkeypatch.setattr(PrefetchEstimate, "prefetch_size", lambda prefetch: 0 if prefetch in wrong else 5)
    monkeypatch.setattr(PrefetchEstimate, "reset", reset)


@pytest.fixture
def long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is claimed ahead waits without a practical limit."""
    monkeypatch.setattr(executor_slots, "MAX_PREFETCH_WAIT", 600.0)


def gated(harness: RunnerHarness, *keys: str) -> list[int]:
    return [harness.world.add(name="gated", body=f'{{"key": "{key}"}}') for key in keys]


def was_released(harness: RunnerHarness, task_id: int) -> bool:
    return harness.world.outcomes(task_id) == ["released"]


async def test_an_executor_slot_is_free_before_the_outcome_is_committed(each_harness: RunnerHarness) -> None:
    queue, ran = Queue("q"), asyncio.Semaphore(0)

    @queue.task
    async def it() -> int:
        ran.release()
        return 1

    ids = [each_harness.world.add(name="it") for _ in range(3)]
    answer = each_harness.database.hold("complete", times=None)
    runner = each_harness.run(queue, count=1)
    async with asyncio.timeout(20):
        for _ in ids:
            await ran.acquire()
    await eventually_async(lambda: runner.in_flight == 3)
    assert [each_harness.world.status(task_id) for task_id in ids] == [Status.WORKING] * 3
    answer.heal()
    for task_id in ids:
        assert (await each_harness.until(task_id, Status.DONE)).attempts == 0
    await eventually_async(lambda: runner.in_flight == 0)


@pytest.mark.usefixtures("ahead")
async def test_a_task_that_was_claimed_ahead_and_does_not_begin_in_time_is_released(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    first, *others = gated(each_harness, "0", "1", "2", "3")
    each_harness.run(gates.queue, count=1)
    for task_id in others:
        await eventually_async(partial(was_released, each_harness, task_id))
        assert each_harness.world.status(task_id) is Status.PENDING
    assert each_harness.world.status(first) is Status.WORKING
    gates.open(*"0123")
    for task_id in (first, *others):
        task = await each_harness.until(task_id, Status.DONE)
        assert (task.attempts, task.lease) == (0, 1 if task_id == first else 2)
    assert sorted(gates.began) == list("0123")


@pytest.mark.usefixtures("ahead", "long_wait")
async def test_a_stop_releases_at_once_what_was_claimed_ahead(each_harness: RunnerHarness, gates: Gates) -> None:
    first, *others = gated(each_harness, "0", "1", "2")
    runner = each_harness.run(gates.queue, count=1)
    await eventually_async(lambda: runner.in_flight == 3)
    stopping = asyncio.create_task(each_harness.stop(runner, grace=60.0))
    for task_id in others:
        await each_harness.until(task_id, Status.PENDING)
    assert each_harness.world.status(first) is Status.WORKING
    gates.open("0")
    await stopping
    assert each_harness.world.status(first) is Status.DONE
    assert gates.began == ["0"]


@pytest.mark.usefixtures("ahead", "long_wait")
async def test_a_task_that_waits_for_a_slot_is_touched_and_never_begins_once_it_is_canceled(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    first, second = gated(each_harness, "0", "1")
    runner = each_harness.run(gates.queue, count=1)
    await eventually_async(lambda: runner.in_flight == 2)
    before = each_harness.world.get(second).checked_at
    assert before is not None
    await eventually_async(lambda: (each_harness.world.get(second).checked_at or before) > before)
    each_harness.database.run(act_on_task, second, BulkCancel("not needed any more"))
    await eventually_async(lambda: each_harness.of(ClaimLost))
    gates.open("0", "1")
    await each_harness.until(first, Status.DONE)
    await eventually_async(lambda: runner.in_flight == 0)
    assert gates.began == ["0"]
    assert each_harness.world.status(second) is Status.CANCELED


# ---------------------------------------------------------------- limited claims beside them


@pytest.fixture
def always_ahead(ahead: None, long_wait: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tasks are claimed ahead, whatever comes of it."""
    monkeypatch.setattr(PrefetchEstimate, "prefetch_size", lambda prefetch: 5)


@pytest.mark.usefixtures("always_ahead")
async def test_a_process_that_always_claims_ahead_makes_limited_claims_too(each_harness: RunnerHarness) -> None:
    queue, began = Queue("q"), []

    @queue.task
    async def it(key: str = "") -> None:
        began.append(key)
        await asyncio.sleep(0.02)

    for _ in range(150):
        each_harness.world.add(name="it")
    each_harness.run(queue, count=1)
    await eventually_async(lambda: len(began) > 5)
    keyed = [each_harness.world.insert(name="it", limit_key="a", body='{"key": "a"}') for _ in range(2)]
    for task_id in keyed:
        await each_harness.until(task_id, Status.DONE)
    assert began.count("") < 100
