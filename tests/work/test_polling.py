"""A process that polls in vain asks one question each time, and finds by it all that it might claim."""

from __future__ import annotations

import asyncio

import pytest

from peerd import Client, Status
from peerd.testing import eventually_async
from peerd.work import task_runner
from peerd.work.claims import toucher
from tests.store.claim_mutex import MANY, standing, waiting
from tests.work.harness import Bench, Gates


async def test_it_looks_and_claims_nothing(each_bench: Bench, gates: Gates) -> None:
    calls = each_bench.database.calls
    each_bench.run(gates.queue, poll_every=0.3)
    await eventually_async(lambda: calls["look"] >= 8)
    assert not calls["claim"]


async def at_rest(bench: Bench) -> None:
    """It has looked so often in vain that its next pause is 1.2 s at the least."""
    await eventually_async(lambda: bench.database.calls["look"] >= 5)


async def test_who_is_rung_at_in_vain_looks_too_and_rests_again(each_bench: Bench, gates: Gates) -> None:
    calls = each_bench.database.calls
    runner = each_bench.run(gates.queue, poll_every=60.0)
    await at_rest(each_bench)
    looks = calls["look"]
    runner.ring()
    await eventually_async(lambda: calls["look"] > looks)
    assert calls["claim"] == (0 if each_bench.database.has_one_writer else 1)
    gates.open("")
    task_id = each_bench.world.add(name="gated")
    runner.ring()
    await each_bench.until(task_id, Status.DONE)


async def test_who_is_rung_at_on_a_server_claims_before_it_looks(each_bench: Bench, gates: Gates) -> None:
    calls = each_bench.database.calls
    runner = each_bench.run(gates.queue, poll_every=60.0)
    await at_rest(each_bench)
    looks = calls["look"]
    task_id = each_bench.world.add(name="gated")
    runner.ring()
    await each_bench.until(task_id, Status.WORKING)
    if not each_bench.database.has_one_writer:
        assert (calls["claim"], calls["look"]) == (1, looks)
    gates.open("")
    await each_bench.until(task_id, Status.DONE)


async def test_who_is_rung_at_finds_what_takes_turns(each_bench: Bench, gates: Gates) -> None:
    runner = each_bench.run(gates.queue, poll_every=60.0)
    await at_rest(each_bench)
    gates.open("")
    task_id = each_bench.world.insert(name="gated", body="{}", limit_key="a.mp4")
    runner.ring()
    await each_bench.until(task_id, Status.DONE)


@pytest.mark.parametrize("crashes", [0, 1])
async def test_it_finds_what_nobody_has_rung_for(each_bench: Bench, gates: Gates, crashes: int) -> None:
    each_bench.run(gates.queue, poll_every=0.3)
    await eventually_async(lambda: each_bench.database.calls["look"] >= 3)
    gates.open("")
    task_id = each_bench.world.insert(name="gated", body="{}", crashes=crashes)
    await each_bench.until(task_id, Status.DONE)


async def test_what_nobody_claims_is_not_looked_for_for_ever(
    each_bench: Bench, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toucher, "STRAYS_FOR", 0.2)
    calls = each_bench.database.calls
    each_bench.run(gates.queue, poll_every=0.3, update=0.02)
    await eventually_async(lambda: calls["held_by"] >= 1)
    await eventually_async(lambda: calls["look"] >= 3)

    async def beats(more: int) -> None:
        until = calls["beat_process"] + more
        await eventually_async(lambda: calls["beat_process"] >= until)

    await beats(5)
    looks = calls["held_by"]
    await beats(5)
    assert calls["held_by"] == looks
    each_bench.world.add(name="gated")  # it claims again, so its answer may be lost again
    await eventually_async(lambda: calls["held_by"] > looks)


@pytest.mark.parametrize("database", ["mariadb", "postgresql"], indirect=True)
async def test_who_has_met_others_waits_in_their_line(each_bench: Bench, gates: Gates) -> None:
    """And claims when it is its turn."""
    store = each_bench.database
    with standing(store, "q"):
        runner = each_bench.run(gates.queue, count=MANY)
        runner._claiming._line.met_others()
        task = each_bench.world.add("q", name="gated")
        runner.ring()
        await eventually_async(lambda: waiting(store) == 1)
    gates.open("")
    await each_bench.until(task, Status.DONE)


async def test_rings_in_vain_cost_a_few_looks_a_second_however_many_they_are(each_bench: Bench, gates: Gates) -> None:
    calls = each_bench.database.calls
    runner = each_bench.run(gates.queue, poll_every=60.0)
    await at_rest(each_bench)
    before = calls["look"] + calls["claim"]
    for _ in range(300):
        runner.ring()
        await asyncio.sleep(0.005)
    asked = calls["look"] + calls["claim"] - before
    capacity, per_second = task_runner.LOOKS_IN_VAIN
    assert capacity <= asked <= 2 * (capacity + per_second * 5.0), "a claim and a look for each"
    gates.open("")
    task_id = each_bench.world.add(name="gated")
    runner.ring()
    await each_bench.until(task_id, Status.DONE, within=5.0)


async def test_so_do_rings_that_say_in_vain_that_tasks_were_taken(bench: Bench, gates: Gates) -> None:
    calls = bench.database.calls
    task_id = bench.world.add(name="gated")
    runner = bench.run(gates.queue, update=60.0)
    await eventually_async(lambda: gates.began)
    before = calls["held_by"]
    looking = []
    for _ in range(300):
        looking.append(asyncio.create_task(runner.look_at(frozenset({task_id}))))
        await asyncio.sleep(0.005)
    await asyncio.gather(*looking)
    capacity, per_second = task_runner.LOOKS_IN_VAIN
    assert capacity <= calls["held_by"] - before <= capacity + per_second * 5.0
    Client(bench.database).tasks.cancel(task_id)
    await runner.look_at(frozenset({task_id}))
    await eventually_async(lambda: not runner.in_flight)
