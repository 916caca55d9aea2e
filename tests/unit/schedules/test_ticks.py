from __future__ import annotations

import asyncio
from typing import Any

from peerd.store.nodes import nodes
from peerd.store.tasks import read
from tests.unit.schedules.fake_node import schedule
from tests.unit.schedules.functions import CALLS


async def test_a_tick_of_the_cluster_is_run_by_one_process_of_one_node_and_a_worker_tick_by_one_of_each(
    node: Any,
) -> None:
    given = schedule(), schedule(name="each", type="worker")
    both = [node(*given, name=name) for name in ("a", "b")]
    for fake in both:
        fake.add_worker()
        fake.add_worker()
        await fake.clock.step()
    both[0].make_due()
    await asyncio.gather(*(fake.clock.step() for fake in both))
    [run] = await both[0].until("done")
    assert [("s", "clock", run.slot, (), {})] == CALLS
    both[0].make_due("each")
    for fake in both:
        await fake.clock.step()
    runs = await both[0].until("done", "done", "done")
    assert {one.node_id for one in runs[1:]} == {fake.identity.node_id for fake in both}


async def test_an_all_tick_is_run_by_every_process_of_its_kinds(node: Any) -> None:
    fake = node(schedule(type="all", workers=("w",)))
    processes = [fake.add_worker() for _ in range(3)]
    fake.add_worker("other")
    await fake.clock.step()
    fake.make_due()
    runs = await fake.until("done", "done", "done")
    assert {run.slot for run in runs} == {process.slot for process in processes}
    assert len({run.tick_at for run in runs}) == 1


async def test_a_tick_waits_for_a_process_that_could_run_it_unless_it_enqueues_a_task(node: Any) -> None:
    fake = node(schedule(workers=("w",)), schedule(name="tasks", queue="q", task="t", body='{"a":1}'))
    fake.add_worker("other")
    await fake.clock.step()
    fake.make_due()
    await fake.until("waiting")
    fake.make_due("tasks")
    [_, run] = await fake.until("waiting", "enqueued")
    task = fake.database.read(read.get_task, run.task_id)
    assert (task.queue, task.name, task.json) == ("q", "t", {"a": 1})
    fake.add_worker("w")
    await fake.until("done", "enqueued")


async def test_a_drained_node_leaves_the_ticks_of_the_cluster_to_others(node: Any) -> None:
    given = schedule()
    first, second = node(given, name="a"), node(given, name="b")
    for fake in (first, second):
        fake.add_worker()
        await fake.clock.step()
    first.database.run(nodes.set_draining, "a", draining=True)
    first.make_due()
    await first.clock.step()
    assert first.runs() == []
    [run] = await second.until("done")
    assert run.node_id == second.identity.node_id
    first.request()
    await first.until("done", "done")
