from __future__ import annotations

import asyncio
from typing import Any

from peerd.store.schedule_runs import claim_run
from peerd.testing import eventually_async
from tests.unit.schedules.fake_node import schedule
from tests.unit.schedules.functions import CALLS


async def test_a_run_whose_process_dies_or_cannot_run_schedules_is_recorded_as_such(node: Any) -> None:
    fake = node(schedule("gated"))
    process = fake.add_worker()
    await fake.clock.step()
    fake.request()
    [run] = await fake.until("running")
    assert run.pid == fake.kill_worker(process)
    [run] = await fake.until("died")
    assert run.error == "its process died: killed by SIGKILL"
    fake.add_worker(runs=False)
    fake.request()
    await fake.until("died", "refused")


async def test_a_run_that_reaches_no_process_is_given_to_another(node: Any) -> None:
    fake = node(schedule())
    gone = fake.add_worker()
    await fake.clock.step()
    fake.remove_worker(gone, announce=False)  # the exit has not been reported to the agent yet
    fake.request()
    await fake.clock.step()
    await fake.until("waiting", steps=False)
    fake.announce_processes()
    process = fake.add_worker()
    [run] = await fake.until("done")
    assert run.slot == process.slot


async def test_a_new_agent_repeats_nothing_and_receives_what_the_earlier_one_has_begun(
    node: Any, gate: asyncio.Event
) -> None:
    fake = node(schedule("gated", immediate=True, type="worker"))
    fake.add_worker()
    await fake.until("running")
    await eventually_async(lambda: CALLS)
    fake.replace_agent()
    for _ in range(3):
        await fake.clock.step()
    gate.set()
    [run] = await fake.until("done")
    assert [(run.id,)] == CALLS


async def test_a_run_that_a_dead_agent_took_and_did_not_send_is_sent_by_the_next(node: Any) -> None:
    fake = node(schedule())
    await fake.clock.step()
    run = fake.request()
    process = fake.add_worker()
    [peer] = fake.agent.messenger.workers
    fake.database.run(claim_run, run, schedule(), fake.identity, [(process.slot, peer.pid)])
    fake.replace_agent()
    await fake.until("done")
    assert len(CALLS) == 1
