"""Runs whose process or agent dies, and what the next agent makes of them."""

from __future__ import annotations

import asyncio
from typing import Any

from peerd.store.schedule_runs import claim_run
from peerd.testing import eventually_async
from tests.unit.schedules.fake_node import schedule
from tests.unit.schedules.functions import CALLS


async def test_a_run_whose_process_dies_is_on_record_as_that(node: Any) -> None:
    wire = node(schedule("gated"))
    process = wire.add_worker()
    await wire.clock.step()
    wire.request()
    [run] = await wire.until("running")
    assert run.pid == wire.kill_worker(process)
    [run] = await wire.until("died")
    assert run.error == "its process died: killed by SIGKILL"


async def test_a_run_that_reaches_no_process_is_given_to_another(node: Any) -> None:
    wire = node(schedule())
    gone = wire.add_worker()
    await wire.clock.step()
    wire.lose_worker(gone, tell=False)  # the agent has not heard of it yet
    wire.request()
    await wire.clock.step()
    await wire.until("waiting", steps=False)
    wire.tell_processes()
    process = wire.add_worker()
    [run] = await wire.until("done")
    assert run.slot == process.slot


async def test_a_process_that_cannot_run_schedules_says_so(node: Any) -> None:
    wire = node(schedule())
    wire.add_worker(runs=False)
    await wire.clock.step()
    wire.request()
    await wire.until("refused")


async def test_a_new_agent_repeats_nothing_and_hears_of_what_the_earlier_one_has_begun(
    node: Any, gate: asyncio.Event
) -> None:
    wire = node(schedule("gated", immediate=True, type="worker"))
    wire.add_worker()
    await wire.until("running")
    await eventually_async(lambda: CALLS)
    wire.replace_agent()
    for _ in range(3):
        await wire.clock.step()
    gate.set()
    [run] = await wire.until("done")
    assert [(run.id,)] == CALLS


async def test_a_run_that_an_agent_took_and_did_not_live_to_send_is_sent_by_the_next(node: Any) -> None:
    wire = node(schedule())
    await wire.clock.step()
    run = wire.request()
    process = wire.add_worker()
    [peer] = wire.agent.messenger.workers
    wire.database.run(claim_run, run, schedule(), wire.identity, [(process.slot, peer.pid)])
    wire.replace_agent()
    await wire.until("done")
    assert len(CALLS) == 1
