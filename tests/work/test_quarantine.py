"""Tasks that must run alone: a process runs empty for them, and then takes one after another."""

from __future__ import annotations

import pytest

from peerd import Status
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.testing import eventually_async
from peerd.work.claims import task_fetcher
from tests.work.harness import Gates, RunnerHarness


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
    assert gates.began == ["beside"]  # the process runs empty for it
    gates.open("beside")
    await each_harness.until(beside, Status.DONE)
    await eventually_async(lambda: gates.began == ["beside", "poison"])
    claims = each_harness.database.calls["claim"]
    assert world.status(later) is Status.PENDING
    gates.open("poison", "later")
    await each_harness.until(poison, Status.DONE)
    await each_harness.until(later, Status.DONE)
    assert each_harness.database.calls["claim"] > claims


async def test_tasks_that_must_run_alone_follow_one_another_at_once_where_nothing_else_waits(
    each_harness: RunnerHarness, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_fetcher, "QUARANTINE_CHECK_EVERY", 3600.0)
    lonely = [each_harness.world.insert(name="gated", crashes=1, start_at=seconds_from_now(-60.0)) for _ in range(3)]
    gates.open("")
    each_harness.run(gates.queue, count=3)
    for task_id in lonely:
        await each_harness.until(task_id, Status.DONE)


async def test_a_process_that_has_run_empty_takes_one_after_another_of_those_that_must_run_alone(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    world = each_harness.world
    world.add(name="gated", body='{"key": "beside"}')
    runner = each_harness.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began)
    lonely = ["first", "second", "third"]
    for key in lonely:
        world.insert(name="gated", body=f'{{"key": "{key}"}}', crashes=1, start_at=seconds_from_now(-60.0))
    await eventually_async(lambda: runner._task_fetcher._drains_for_quarantine)
    later = world.add(name="gated", body='{"key": "later"}')
    gates.open("beside", *lonely, "later")
    await each_harness.until(later, Status.DONE)
    assert gates.began == ["beside", *lonely, "later"]


async def test_what_must_run_alone_and_has_not_waited_yet_comes_after_all_else(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    world = each_harness.world
    lonely = world.insert(name="gated", body='{"key": "lonely"}', crashes=1)
    others = [f"{n}" for n in range(4)]
    for key in others:
        world.add(name="gated", body=f'{{"key": "{key}"}}')
    gates.open("lonely", *others)
    each_harness.run(gates.queue, count=1)
    await each_harness.until(lonely, Status.DONE)
    assert gates.began == [*others, "lonely"]


async def test_waiting_for_a_process_to_run_empty_costs_no_busy_loop(harness: RunnerHarness, gates: Gates) -> None:
    harness.world.add(name="gated", body='{"key": "beside"}')
    runner = harness.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began)
    harness.world.insert(name="gated", crashes=1, start_at=seconds_from_now(-60.0))
    looks: list[float] = []
    pause = runner._task_fetcher.pause

    def watched() -> float:
        looks.append(pause())
        return looks[-1]

    runner._task_fetcher.pause = watched  # type: ignore[method-assign]
    await eventually_async(lambda: runner._task_fetcher._drains_for_quarantine)
    seen = len(looks)
    await eventually_async(lambda: len(looks) > seen)
    assert min(looks[seen:]) > 0
