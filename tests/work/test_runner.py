"""Running tasks: how many at once, in which order, what is written of them, and what a handler can use."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar
from typing import Any

import pytest

from peerd import Cancel, Client, Context, Dead, Queue, Retry, Snooze, Status
from peerd.domain.known_handlers import UnsupportedTask
from peerd.domain.task import NewTask
from peerd.runtime.observability.events import AttemptEnded, EventBus
from peerd.store import enqueue
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.testing import eventually_async
from peerd.work.active_attempt import ActiveAttempt
from peerd.work.attempt_execution import Execution
from peerd.work.attempt_outcome import MAX_YIELD_DELAY, UnknownHandlerResolver
from tests.work.harness import Gates, RunnerHarness


async def test_as_many_tasks_run_at_once_as_count_shows_and_no_more(each_harness: RunnerHarness, gates: Gates) -> None:
    ids = [each_harness.world.add(name="gated", body=f'{{"key": "{n}"}}') for n in range(5)]
    runner = each_harness.run(gates.queue, count=3)
    await eventually_async(lambda: len(gates.began) == 3)
    assert runner.in_flight == 3
    statuses = [each_harness.world.status(task_id) for task_id in ids]
    assert statuses.count(Status.WORKING) == 3
    gates.open(*"01234")
    for n, task_id in enumerate(ids):
        task = await each_harness.until(task_id, Status.DONE)
        assert (task.result, task.attempts, task.progress) == (f'"{n}"', 0, 1.0)
    assert each_harness.world.attempt_rows() == 0


OUTCOMES = (
    (Retry("1h", "later"), Status.FAILURE, 1, "failure"),
    (Snooze("1h", "tired"), Status.SCHEDULED, 0, "snoozed"),
    (Cancel("not needed"), Status.CANCELED, 1, "canceled"),
    (Dead("no video"), Status.DEAD, 1, "dead"),
    (ValueError("boom"), Status.FAILURE, 1, "failure"),
)
"""What a handler raises; the status, the attempts and the outcome of the row."""


async def test_every_outcome_is_written_with_its_attempt(each_harness: RunnerHarness) -> None:
    queue = Queue("q")

    @queue.task
    async def it(number: int) -> None:
        raise OUTCOMES[number][0]

    ids = [each_harness.world.add(name="it", body=f'{{"number": {number}}}') for number in range(len(OUTCOMES))]
    each_harness.run(queue)
    for task_id, (outcome, status, attempts, label) in zip(ids, OUTCOMES, strict=True):
        task = await each_harness.until(task_id, status)
        assert task.attempts == attempts, outcome
        [attempt] = each_harness.world.attempts(task_id)
        assert (attempt.outcome, attempt.number) == (label, attempts), outcome
        assert str(outcome) in str(attempt.error)
    await eventually_async(lambda: sorted(ended.task_id for ended in each_harness.of(AttemptEnded)) == ids)


async def test_a_handler_can_enqueue_and_use_the_client(harness: RunnerHarness) -> None:
    queue = Queue("q")

    @queue.task
    async def it(ctx: Context) -> int:
        assert isinstance(ctx.client, Client)
        return int((await ctx.enqueue("other", name="next")).id)

    client = Client(harness.database)
    worker_task = harness.world.add(name="it")
    harness.run(queue, client=client)
    task = await harness.until(worker_task, Status.DONE)
    assert harness.world.get(int(task.result or 0)).name == "next"
    client.close()


async def test_attempts_share_neither_context_variables_nor_the_asyncio_task(harness: RunnerHarness) -> None:
    queue, seen = Queue("q"), list[tuple[str, asyncio.Task[Any]]]()
    variable = ContextVar("variable", default="nothing")

    @queue.task
    async def it() -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append((variable.get(), task))
        variable.set("something")
        asyncio.get_running_loop().call_soon(task.cancel)

    ids = [harness.world.add(name="it") for _ in range(20)]
    harness.run(queue, count=1)
    for task_id in ids:
        await harness.until(task_id, Status.DONE)
    assert [value for value, _ in seen] == ["nothing"] * 20
    assert len({id(task) for _, task in seen}) == 20


async def test_an_attempt_that_has_ended_leaves_nothing_to_the_garbage_collector(harness: RunnerHarness) -> None:
    """Reference cycles would be collected, at the cost of a part of each task's time."""
    queue = Queue("q")

    @queue.task
    async def it() -> None:
        pass

    def count() -> int:
        return sum(isinstance(one, Execution | ActiveAttempt | Context) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    before = count()
    try:
        ids = [one.id for one in harness.world.store.run(enqueue.enqueue_many, [NewTask(queue="q", name="it")] * 50)]
        harness.run(queue, count=5)
        for task_id in ids:
            await harness.until(task_id, Status.DONE)
        await eventually_async(lambda: count() - before < 10)
    finally:
        gc.enable()


@pytest.mark.every_database
async def test_a_queue_that_was_written_with_a_space_at_its_end_harms_nothing(each_harness: RunnerHarness) -> None:
    """It is another queue, which no worker serves."""
    queue = Queue("q")

    @queue.task(name="it")
    def it() -> int:
        return 1

    padded = each_harness.world.insert(queue="q ", name="it", body="{}")
    plain = each_harness.world.add(name="it")
    each_harness.run(queue)
    await each_harness.until(plain, Status.DONE)
    assert each_harness.world.status(padded) is Status.PENDING
    assert each_harness.uncaught == []


async def test_a_process_that_has_released_an_unknown_task_delays_its_claims(harness: RunnerHarness) -> None:
    """So processes that know it may claim it first."""
    client = Client(harness.database)
    task = client.tasks.get(client.enqueue("work", name="goes").id)
    outages = OutageTracker(EventBus(), asyncio.get_running_loop().time)
    resolver = UnknownHandlerResolver(DatabaseThreads(harness.database), outages, unknown_after=60.0)
    assert resolver.yield_delay() == 0.0
    await resolver.resolve_unknown_handler(task, UnsupportedTask("no handler named 'goes'"))
    waits = [resolver.yield_delay() for _ in range(20)]
    assert 0.0 <= min(waits) < max(waits) <= MAX_YIELD_DELAY
