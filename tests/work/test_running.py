"""Tasks run: how many at once, in which order, what is written; and what takes a running task from its handler."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from peerd import Cancel, Client, Context, Dead, Queue, Retry, Snooze, Status, Task, TaskWorker
from peerd.domain.outcome import Done, Outcome
from peerd.domain.task import NewTask
from peerd.runtime.events import AttemptEnded, ClaimLost
from peerd.store import enqueue, intervene
from peerd.store.clock import seconds_from_now
from peerd.testing import eventually_async
from peerd.work import claiming
from peerd.work.worker import State
from tests.work.bench import Bench, Gates


async def test_as_many_tasks_run_at_once_as_count_says_and_no_more(each_bench: Bench, gates: Gates) -> None:
    ids = [each_bench.world.add(name="gated", body=f'{{"key": "{n}"}}') for n in range(5)]
    runner = each_bench.run(gates.queue, count=3)
    await eventually_async(lambda: len(gates.began) == 3)
    assert runner.in_flight == 3
    statuses = [each_bench.world.status(task_id) for task_id in ids]
    assert statuses.count(Status.WORKING) == 3
    gates.open(*"01234")
    for n, task_id in enumerate(ids):
        task = await each_bench.until(task_id, Status.DONE)
        assert (task.result, task.attempts, task.progress) == (f'"{n}"', 0, 1.0)
    assert each_bench.world.attempt_rows() == 0


async def test_tasks_begin_by_priority_then_attempts_then_age(bench: Bench) -> None:
    queue, order = Queue("q"), list[str]()

    @queue.task
    async def it(key: str) -> None:
        order.append(key)

    def add(key: str, **columns: object) -> None:
        bench.world.insert(name="it", body=f'{{"key": "{key}"}}', **columns)

    add("young")
    add("tried", attempts=1)
    add("old", start_at=seconds_from_now(-60.0))
    add("urgent", priority=20)
    add("not now", start_at=seconds_from_now(60.0))
    bench.run(queue)
    await eventually_async(lambda: len(order) == 4)
    assert order == ["urgent", "old", "young", "tried"]


async def test_a_worker_of_two_queues_takes_the_best_of_both(bench: Bench) -> None:
    seen: list[tuple[str, object]] = []

    class Legacy(TaskWorker):
        queues = ("legacy", "legacy-low")

        async def handle_task(self, task: Task) -> None:
            seen.append((task.queue, task.json))

    bench.world.add("legacy-low", body="1", priority=5)
    bench.world.add("legacy", body="2", priority=4)
    bench.world.add("legacy-low", body="{unreadable", priority=3)
    bench.world.add("other", body="4", priority=9)
    bench.run(Legacy())
    await eventually_async(lambda: len(seen) == 3)
    assert seen == [("legacy-low", 1), ("legacy", 2), ("legacy-low", None)]


async def test_the_state_of_a_worker_is_idle_then_work_then_stop(bench: Bench, gates: Gates) -> None:
    class Legacy(TaskWorker):
        queues = ("legacy",)

        async def handle_task(self, task: Task) -> None:
            await gates.gate("it").wait()

    worker = Legacy()

    def state() -> State:
        return worker.state

    assert state() is State.STOP
    runner = bench.run(worker)
    await eventually_async(lambda: state() is State.IDLE)
    task_id = bench.world.add("legacy")
    await eventually_async(lambda: state() is State.WORK)
    gates.open("it")
    await bench.until(task_id, Status.DONE)
    await eventually_async(lambda: state() is State.IDLE)
    assert not worker.stopped.is_set()
    await bench.stop(runner)
    assert (state(), worker.stopped.is_set()) == (State.STOP, True)


async def test_progress_is_written_while_the_task_runs(each_bench: Bench) -> None:
    queue, go_on = Queue("q"), asyncio.Event()

    @queue.task
    async def it(ctx: Context) -> None:
        await ctx.progress(0.25, "a quarter")
        await ctx.progress(0.5, "half of it")
        await go_on.wait()

    task_id = each_bench.world.add(name="it")
    each_bench.run(queue)
    await eventually_async(lambda: each_bench.world.get(task_id).progress == 0.5)
    assert each_bench.world.get(task_id).progress_note == "half of it"
    go_on.set()
    await each_bench.until(task_id, Status.DONE)


@pytest.mark.parametrize(
    ("outcome", "status", "attempts", "label"),
    [
        (Retry("1h", "later"), Status.FAILURE, 1, "failure"),
        (Snooze("1h", "tired"), Status.SCHEDULED, 0, "snoozed"),
        (Cancel("nobody"), Status.CANCELED, 1, "canceled"),
        (Dead("no video"), Status.DEAD, 1, "dead"),
        (ValueError("boom"), Status.FAILURE, 1, "failure"),
    ],
)
async def test_every_outcome_is_written_with_its_attempt(
    each_bench: Bench, outcome: Exception, status: Status, attempts: int, label: str
) -> None:
    queue = Queue("q")

    @queue.task
    async def it() -> None:
        raise outcome

    task_id = each_bench.world.add(name="it")
    each_bench.run(queue)
    task = await each_bench.until(task_id, status)
    assert task.attempts == attempts
    [attempt] = each_bench.world.attempts(task_id)
    assert (attempt.outcome, attempt.number) == (label, attempts)
    assert str(outcome) in str(attempt.error)
    await eventually_async(lambda: [ended.task_id for ended in each_bench.of(AttemptEnded)] == [task_id])


async def test_attempts_end_at_the_handlers_own_maximum(bench: Bench) -> None:
    queue = Queue("q")

    @queue.task(max_attempts=2)
    async def it() -> None:
        raise ValueError("boom")

    task_id = bench.world.add(name="it")
    bench.run(queue)

    def look() -> bool:
        bench.world.arrive()
        return bench.world.status(task_id) is Status.DEAD

    await eventually_async(look)
    assert [attempt.number for attempt in bench.world.attempts(task_id)] == [1, 2]


Take = Callable[[Client, int], None]


@pytest.mark.parametrize(
    ("take", "status"),
    [
        (lambda client, task_id: client.tasks.cancel(task_id), Status.CANCELED),
        (lambda client, task_id: client.tasks.move(task_id, "b"), Status.PENDING),
        (lambda client, task_id: client.tasks.delete(task_id), None),
    ],
    ids=["cancel", "move", "delete"],
)
async def test_what_takes_a_running_task_away_cancels_its_handler(
    each_bench: Bench, gates: Gates, take: Take, status: Status | None
) -> None:
    world = each_bench.world
    world.node("b")
    task_id = world.add(name="gated")
    each_bench.run(gates.queue)
    await eventually_async(lambda: gates.began)
    take(Client(each_bench.database), task_id)
    await eventually_async(lambda: gates.cancelled)
    found = world.find(task_id)
    assert (found.status if found else None) is status
    await eventually_async(lambda: each_bench.of(ClaimLost))


async def test_the_late_outcome_of_a_task_that_was_retried_is_refused(each_bench: Bench) -> None:
    queue, began, go_on = Queue("q"), list[int](), threading.Event()

    @queue.task
    def it(ctx: Context) -> int:
        began.append(ctx.lease)
        if ctx.lease == 1:
            go_on.wait(20)  # a thread cannot be cancelled: it will say something when it has lost its claim
        return ctx.lease

    task_id = each_bench.world.add(name="it")
    each_bench.run(queue, count=2)
    await eventually_async(lambda: began == [1])
    each_bench.world.store.run(intervene.retry, task_id)
    task = await each_bench.until(task_id, Status.DONE)
    go_on.set()
    await eventually_async(lambda: each_bench.of(ClaimLost))
    assert (task.result, began) == ("3", [1, 3])
    assert each_bench.world.get(task_id) == task


async def test_a_running_task_is_canceled_when_its_finish_at_comes(each_bench: Bench, gates: Gates) -> None:
    runner = each_bench.run(gates.queue)
    task_id = each_bench.world.add(name="gated", finish_in=2.0)
    runner.ring()
    task = await each_bench.until(task_id, Status.CANCELED)
    assert task.error == "its finish_at came while it ran"
    assert gates.cancelled == [""]


async def test_a_handler_can_enqueue_and_ask_the_client(bench: Bench) -> None:
    queue = Queue("q")

    @queue.task
    async def it(ctx: Context) -> int:
        assert isinstance(ctx.client, Client)
        return int((await ctx.enqueue("other", name="next")).id)

    client = Client(bench.database)
    worker_task = bench.world.add(name="it")
    bench.run(queue, client=client)
    task = await bench.until(worker_task, Status.DONE)
    assert bench.world.get(int(task.result or 0)).name == "next"
    client.close()


async def test_attempts_share_neither_context_variables_nor_the_asyncio_task(bench: Bench) -> None:
    queue, seen = Queue("q"), list[tuple[str, asyncio.Task[Any]]]()
    said = ContextVar("said", default="nothing")

    @queue.task
    async def it() -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append((said.get(), task))
        said.set("something")
        asyncio.get_running_loop().call_soon(task.cancel)

    ids = [bench.world.add(name="it") for _ in range(20)]
    bench.run(queue, count=1)
    for task_id in ids:
        await bench.until(task_id, Status.DONE)
    assert [value for value, _ in seen] == ["nothing"] * 20
    assert len({id(task) for _, task in seen}) == 20


async def test_a_workers_own_hooks_are_called(bench: Bench) -> None:
    called: list[object] = []

    class Hooked(TaskWorker):
        queues = ("q",)

        async def after_attempt(self, ctx: Context, outcome: Outcome) -> None:
            called.append((ctx.task.id, outcome))

        async def handle_task(self, task: Task) -> str:
            called.append(task.id)
            return "well"

    task_id = bench.world.add()
    bench.run(Hooked())
    await bench.until(task_id, Status.DONE)
    assert called == [task_id, (task_id, Done('"well"'))]


# ---------------------------------------------------------------- stopping


async def test_stopping_claims_no_more_and_lets_what_runs_end(bench: Bench, gates: Gates) -> None:
    first = bench.world.add(name="gated")
    runner = bench.run(gates.queue)
    await eventually_async(lambda: gates.began)
    stopping = asyncio.create_task(bench.stop(runner))
    await asyncio.sleep(0)
    second = bench.world.add(name="gated")
    gates.open("")
    await stopping
    assert [bench.world.status(task_id) for task_id in (first, second)] == [Status.DONE, Status.PENDING]


async def test_what_outlives_the_grace_is_given_back_and_not_counted(each_bench: Bench, gates: Gates) -> None:
    task_id = each_bench.world.add(name="gated")
    runner = each_bench.run(gates.queue)
    await eventually_async(lambda: gates.began)
    await each_bench.stop(runner, grace=0.0)
    assert (each_bench.world.status(task_id), each_bench.world.get(task_id).attempts) == (Status.PENDING, 0)
    assert each_bench.world.outcomes(task_id) == ["released"]
    assert gates.cancelled == [""]


async def test_the_task_of_a_thread_is_not_given_back_before_the_thread_has_ended(bench: Bench) -> None:
    queue, began, go_on = Queue("q"), threading.Event(), threading.Event()

    @queue.task
    def it(ctx: Context) -> str:
        began.set()
        go_on.wait(20)
        return "gave up" if ctx.cancelled else "whole"

    task_id = bench.world.add(name="it")
    runner = bench.run(queue, update=0.05)
    await eventually_async(began.is_set)
    stopping = asyncio.create_task(bench.stop(runner, grace=0.0))
    touched = bench.world.get(task_id).checked_at
    await eventually_async(lambda: bench.world.get(task_id).checked_at != touched)
    assert bench.world.status(task_id) is Status.WORKING
    assert not stopping.done()
    go_on.set()
    await stopping
    assert bench.world.status(task_id) is Status.PENDING


async def test_a_stop_before_the_first_claim_does_not_wait_for_one(bench: Bench, gates: Gates) -> None:
    runner = bench.run(gates.queue)
    began = time.monotonic()
    await bench.stop(runner)
    assert time.monotonic() - began < 1.5


async def test_a_stop_can_be_hurried(bench: Bench, gates: Gates) -> None:
    task_id = bench.world.add(name="gated")
    runner = bench.run(gates.queue)
    await eventually_async(lambda: gates.began)
    patient = asyncio.create_task(runner.stop(600.0))
    await asyncio.sleep(0)
    patient.cancel()
    await asyncio.gather(patient, return_exceptions=True)
    await bench.stop(runner, grace=0.0)
    assert bench.world.status(task_id) is Status.PENDING


# ---------------------------------------------------------------- whatever handlers do


async def test_a_blocked_event_loop_does_not_keep_tasks_from_being_touched(bench: Bench) -> None:
    queue, touched = Queue("q"), threading.Event()

    def watch(task_id: int) -> None:
        first = bench.world.get(task_id).checked_at
        while not touched.is_set():
            if bench.world.get(task_id).checked_at != first:
                touched.set()

    @queue.task
    async def it(ctx: Context) -> bool:
        threading.Thread(target=watch, args=(ctx.task.id,), daemon=True).start()
        return touched.wait(15)  # blocks the loop

    task_id = bench.world.add(name="it")
    bench.run(queue, update=0.1)
    assert (await bench.until(task_id, Status.DONE)).result == "true"


def of_any_task(*_: object, alone: bool, **__: object) -> bool:
    return not alone


@pytest.mark.parametrize("fault", ["the loop is blocked", "the answer is lost"])
async def test_what_was_won_is_touched_although_the_loop_has_not_heard_of_it(
    each_bench: Bench, gates: Gates, fault: str
) -> None:
    database, world = each_bench.database, each_bench.world
    if fault == "the loop is blocked":
        database.hold_reply("claim", when=of_any_task)  # the answer is in its thread, and the loop does not take it
    else:
        database.lose_reply("claim", when=of_any_task)
        database.fail("claimed_by_token", times=None)
    task_id = world.add(name="gated")
    each_bench.run(gates.queue, update=0.1)
    first = (await each_bench.until(task_id, Status.WORKING)).checked_at
    await eventually_async(lambda: world.get(task_id).checked_at != first)
    assert gates.began == []
    database.heal()
    gates.open("")
    assert (await each_bench.until(task_id, Status.DONE)).lease == 1
    assert world.outcomes(task_id) == []


async def test_a_task_that_has_crashed_a_process_runs_in_an_empty_one(each_bench: Bench, gates: Gates) -> None:
    world = each_bench.world
    beside = world.add(name="gated", body='{"key": "beside"}')
    each_bench.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began == ["beside"])
    poison = world.insert(name="gated", body='{"key": "poison"}', crashes=1, start_at=seconds_from_now(-60.0))
    await eventually_async(lambda: each_bench.database.calls["should_run_empty"] >= 2)
    later = world.add(name="gated", body='{"key": "later"}')
    await eventually_async(lambda: each_bench.database.calls["should_run_empty"] >= 4)
    assert gates.began == ["beside"]  # the process runs empty for it
    gates.open("beside")
    await each_bench.until(beside, Status.DONE)
    await eventually_async(lambda: gates.began == ["beside", "poison"])
    claims = each_bench.database.calls["claim"]
    assert world.status(later) is Status.PENDING
    gates.open("poison", "later")
    await each_bench.until(poison, Status.DONE)
    await each_bench.until(later, Status.DONE)
    assert each_bench.database.calls["claim"] > claims


async def test_tasks_that_must_run_alone_follow_one_another_at_once_where_nothing_else_waits(
    each_bench: Bench, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "LOOK_FOR_LONELY_EVERY", 3600.0)
    lonely = [each_bench.world.insert(name="gated", crashes=1, start_at=seconds_from_now(-60.0)) for _ in range(3)]
    gates.open("")
    each_bench.run(gates.queue, count=3)
    for task_id in lonely:
        await each_bench.until(task_id, Status.DONE)


async def test_a_process_that_has_run_empty_takes_one_after_another_of_those_that_must_run_alone(
    each_bench: Bench, gates: Gates
) -> None:
    world = each_bench.world
    world.add(name="gated", body='{"key": "beside"}')
    runner = each_bench.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began)
    lonely = ["first", "second", "third"]
    for key in lonely:
        world.insert(name="gated", body=f'{{"key": "{key}"}}', crashes=1, start_at=seconds_from_now(-60.0))
    await eventually_async(lambda: runner._claiming._runs_empty)
    later = world.add(name="gated", body='{"key": "later"}')
    gates.open("beside", *lonely, "later")
    await each_bench.until(later, Status.DONE)
    assert gates.began == ["beside", *lonely, "later"]


async def test_what_must_run_alone_and_has_not_waited_yet_comes_after_all_else(each_bench: Bench, gates: Gates) -> None:
    world = each_bench.world
    lonely = world.insert(name="gated", body='{"key": "lonely"}', crashes=1)
    others = [f"{n}" for n in range(4)]
    for key in others:
        world.add(name="gated", body=f'{{"key": "{key}"}}')
    gates.open("lonely", *others)
    each_bench.run(gates.queue, count=1)
    await each_bench.until(lonely, Status.DONE)
    assert gates.began == [*others, "lonely"]


async def test_waiting_for_a_process_to_run_empty_costs_no_busy_loop(bench: Bench, gates: Gates) -> None:
    bench.world.add(name="gated", body='{"key": "beside"}')
    runner = bench.run(gates.queue, count=3)
    await eventually_async(lambda: gates.began)
    bench.world.insert(name="gated", crashes=1, start_at=seconds_from_now(-60.0))
    looks: list[float] = []
    pause = runner._claiming.pause

    def watched() -> float:
        looks.append(pause())
        return looks[-1]

    runner._claiming.pause = watched  # type: ignore[method-assign]
    await eventually_async(lambda: runner._claiming._runs_empty)
    seen = len(looks)
    await eventually_async(lambda: len(looks) > seen)
    assert min(looks[seen:]) > 0


async def test_enqueued_in_bulk_all_run(bench: Bench) -> None:
    queue, ran = Queue("q"), list[int]()

    @queue.task
    async def it(n: int) -> int:
        ran.append(n)
        return n

    new = [NewTask(queue="q", name="it", body=f'{{"n": {n}}}') for n in range(300)]
    ids = [one.id for one in bench.world.store.run(enqueue.enqueue_many, new)]
    bench.run(queue, count=20)
    for task_id in ids:
        await bench.until(task_id, Status.DONE)
    assert sorted(ran) == list(range(300))
