"""Quarantined tasks: a process empties itself for them, and then takes one after another."""

from __future__ import annotations

import pytest

from peerd import Status
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually_async
from peerd.work import task_fetcher
from tests.work.harness import Gates, RunnerHarness

pytestmark = pytest.mark.every_database


async def test_a_task_that_has_crashed_a_process_runs_in_an_empty_one(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    world = each_harness.world
    beside = world.add(name="gated", body='{"key": "beside"}')
    each_harness.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began == ["beside"])
    poison = world.insert(name="gated", body='{"key": "poison"}', crashes=1, start_at=seconds_from_now(-60.0))
    await eventually_async(lambda: each_harness.database.calls["should_empty_for_quarantined"] >= 2)
    later = world.add(name="gated", body='{"key": "later"}')
    await eventually_async(lambda: each_harness.database.calls["should_empty_for_quarantined"] >= 4)
    assert gates.began == ["beside"]  # the process empties itself for it
    gates.open("beside")
    await each_harness.until(beside, Status.DONE)
    await eventually_async(lambda: gates.began == ["beside", "poison"])
    claims = each_harness.database.calls["claim"]
    assert world.status(later) is Status.PENDING
    gates.open("poison", "later")
    await each_harness.until(poison, Status.DONE)
    await each_harness.until(later, Status.DONE)
    assert each_harness.database.calls["claim"] > claims


async def test_quarantined_tasks_follow_one_another_at_once_where_nothing_else_waits(
    each_harness: RunnerHarness, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_fetcher, "QUARANTINE_CHECK_EVERY", 3600.0)
    quarantined = [
        each_harness.world.insert(name="gated", crashes=1, start_at=seconds_from_now(-60.0)) for _ in range(3)
    ]
    gates.open("")
    each_harness.run(gates.queue, count=3)
    for task_id in quarantined:
        await each_harness.until(task_id, Status.DONE)


async def test_a_quarantined_task_that_has_not_waited_yet_comes_after_all_else(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    world = each_harness.world
    quarantined = world.insert(name="gated", body='{"key": "quarantined"}', crashes=1)
    others = [f"{n}" for n in range(4)]
    for key in others:
        world.add(name="gated", body=f'{{"key": "{key}"}}')
    gates.open("quarantined", *others)
    each_harness.run(gates.queue, count=1)
    await each_harness.until(quarantined, Status.DONE)
    assert gates.began == [*others, "quarantined"]


async def test_emptying_for_a_quarantined_task_causes_no_busy_loop(harness: RunnerHarness, gates: Gates) -> None:
    harness.world.add(name="gated", body='{"key": "beside"}')
    runner = harness.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began)
    harness.world.insert(name="gated", crashes=1, start_at=seconds_from_now(-60.0))
    pauses: list[float] = []
    pause = runner._task_fetcher.pause

    def recorded() -> float:
        pauses.append(pause())
        return pauses[-1]

    runner._task_fetcher.pause = recorded  # type: ignore[method-assign]
    await eventually_async(lambda: runner._task_fetcher._drains_for_quarantine)
    seen = len(pauses)
    await eventually_async(lambda: len(pauses) > seen)
    assert min(pauses[seen:]) > 0
