"""A poll that finds nothing costs one query, and the query finds every kind of task that the process might claim."""

from __future__ import annotations

import asyncio

import pytest

from peerd import Client, Status
from peerd.testing import eventually_async
from peerd.work import active_claims, task_runner
from tests.store.claim_mutex import MANY, holding_mutex, waiting
from tests.support.server_kinds import ON_SERVERS
from tests.work.harness import Gates, RunnerHarness


async def test_an_empty_poll_reads_and_claims_nothing(each_harness: RunnerHarness, gates: Gates) -> None:
    calls = each_harness.database.calls
    each_harness.run(gates.queue, poll_every=0.3)
    await eventually_async(lambda: calls["find_claimable"] >= 8)
    assert not calls["claim"]


async def polled(harness: RunnerHarness, times: int) -> None:
    """Wait until the runner has polled so often once more."""
    until = harness.database.calls["find_claimable"] + times
    await eventually_async(lambda: harness.database.calls["find_claimable"] >= until)


async def polling_slowly(harness: RunnerHarness) -> None:
    """Wait until the runner has polled without a task so often that its next pause is at least 1.2 s."""
    await eventually_async(lambda: harness.database.calls["find_claimable"] >= 5)


async def test_a_ring_causes_a_claim_and_a_backlog_check_and_pauses_again(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    """On a server the claim comes first."""
    calls, is_single_writer = each_harness.database.calls, each_harness.database.is_single_writer
    gates.open("")
    runner = each_harness.run(gates.queue, poll_every=60.0)
    await polling_slowly(each_harness)
    checks = calls["find_claimable"]
    task_id = each_harness.world.add(name="gated")
    with each_harness.database.hold("claim") as held:
        runner.ring()
        await eventually_async(lambda: held.hits)
        assert is_single_writer or (calls["claim"], calls["find_claimable"]) == (1, checks)
    await each_harness.until(task_id, Status.DONE)
    await polled(each_harness, 3)
    claims, checks = calls["claim"], calls["find_claimable"]
    runner.ring()
    await eventually_async(lambda: calls["find_claimable"] > checks)
    assert calls["claim"] == claims + (0 if is_single_writer else 1), "there is no task"
    limited = each_harness.world.insert(name="gated", body="{}", limit_key="a.mp4")
    runner.ring()
    await each_harness.until(limited, Status.DONE)


async def test_polling_finds_tasks_without_a_ring(each_harness: RunnerHarness, gates: Gates) -> None:
    each_harness.run(gates.queue, poll_every=0.3)
    gates.open("")
    for crashes in (0, 1):
        await polled(each_harness, 3)
        task_id = each_harness.world.insert(name="gated", body="{}", crashes=crashes)
        await each_harness.until(task_id, Status.DONE)


async def test_what_is_never_claimed_is_not_searched_for_ever(
    each_harness: RunnerHarness, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_claims, "CHECK_UNKNOWN_FOR", 0.2)
    calls = each_harness.database.calls
    each_harness.run(gates.queue, poll_every=0.3, update=0.02)
    await eventually_async(lambda: calls["claims_of_process"] >= 1)
    await eventually_async(lambda: calls["find_claimable"] >= 3)

    async def wait_for_heartbeats(more: int) -> None:
        until = calls["heartbeat_process"] + more
        await eventually_async(lambda: calls["heartbeat_process"] >= until)

    await wait_for_heartbeats(5)
    queries = calls["claims_of_process"]
    await wait_for_heartbeats(5)
    assert calls["claims_of_process"] == queries
    each_harness.world.add(name="gated")  # it claims again, so its answer may be lost again
    await eventually_async(lambda: calls["claims_of_process"] > queries)


@pytest.mark.parametrize("migrated_database", ON_SERVERS, indirect=True)
async def test_a_process_that_has_met_contention_waits_for_the_claim_mutex(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    """It claims once it has acquired the mutex."""
    store = each_harness.database
    with holding_mutex(store, "q"):
        runner = each_harness.run(gates.queue, count=MANY)
        runner._task_fetcher._mutex.record_contention()
        task = each_harness.world.add("q", name="gated")
        runner.ring()
        await eventually_async(lambda: waiting(store) == 1)
    gates.open("")
    await each_harness.until(task, Status.DONE)


@pytest.mark.slow
async def test_any_number_of_rings_without_a_task_cost_a_few_checks_a_second(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    calls = each_harness.database.calls
    runner = each_harness.run(gates.queue, poll_every=60.0)
    await polling_slowly(each_harness)
    before = calls["find_claimable"] + calls["claim"]
    for _ in range(300):
        runner.ring()
        await asyncio.sleep(0.005)
    queries = calls["find_claimable"] + calls["claim"] - before
    capacity, per_second = task_runner.EMPTY_POLL_BUDGET
    assert capacity <= queries <= 2 * (capacity + per_second * 5.0), "a claim and a backlog check for each"
    gates.open("")
    task_id = each_harness.world.add(name="gated")
    runner.ring()
    await each_harness.until(task_id, Status.DONE, within=30.0)


@pytest.mark.slow
async def test_any_number_of_rings_about_claims_that_were_not_revoked_cost_a_few_checks_a_second(
    harness: RunnerHarness, gates: Gates
) -> None:
    calls = harness.database.calls
    task_id = harness.world.add(name="gated")
    runner = harness.run(gates.queue, update=60.0)
    await eventually_async(lambda: gates.began)
    before = calls["claims_of_process"]
    checks = []
    for _ in range(300):
        checks.append(asyncio.create_task(runner.check_claims(frozenset({task_id}))))
        await asyncio.sleep(0.005)
    await asyncio.gather(*checks)
    capacity, per_second = task_runner.EMPTY_POLL_BUDGET
    assert capacity <= calls["claims_of_process"] - before <= capacity + per_second * 5.0
    Client(harness.database).tasks.cancel(task_id)
    await runner.check_claims(frozenset({task_id}))
    await eventually_async(lambda: not runner.in_flight)
