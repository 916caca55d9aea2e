"""Answers that are lost, a database that is away or refuses: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from peerd import Context, Queue, Retry, Status, Task, TaskWorker
from peerd.runtime.observability.events import (
    AttemptEnded,
    ClaimLost,
    ComponentFailed,
    DatabaseFound,
    DatabaseLost,
    Fact,
    StrayReleased,
)
from peerd.store.outcomes.recording import Held
from peerd.testing import eventually_async
from peerd.work.attempts import outcome_writer
from tests.work.harness import Bench, Gates


def counting() -> tuple[Queue, list[int]]:
    """A queue whose handler ``it`` notes each run."""
    queue, ran = Queue("q"), list[int]()

    @queue.task
    async def it(ctx: Context, fails: bool = False) -> int:  # noqa: FBT001, FBT002
        ran.append(ctx.task.id)
        if fails:
            raise Retry("1h", "not now")
        return ctx.task.id

    return queue, ran


async def test_a_claim_whose_answer_was_lost_is_found_again_and_runs_once(each_bench: Bench) -> None:
    queue, ran = counting()
    ids = [each_bench.world.add(name="it") for _ in range(4)]
    each_bench.database.lose_reply("claim", times=2)
    each_bench.run(queue, count=2)
    for task_id in ids:
        assert (await each_bench.until(task_id, Status.DONE)).lease == 1
    assert sorted(ran) == ids
    assert each_bench.of(StrayReleased) == []


async def test_a_completion_whose_answer_was_lost_was_accepted(each_bench: Bench) -> None:
    queue, ran = counting()
    ids = [each_bench.world.add(name="it") for _ in range(4)]
    each_bench.database.lose_reply("complete", times=3)
    runner = each_bench.run(queue, count=4)
    for task_id in ids:
        assert (await each_bench.until(task_id, Status.DONE)).result == str(task_id)
    await eventually_async(lambda: runner.in_flight == 0)
    assert sorted(ran) == ids
    assert each_bench.of(ClaimLost) == []


async def test_a_failure_whose_answer_was_lost_was_accepted_and_counted_once(each_bench: Bench) -> None:
    queue, ran = counting()
    task_id = each_bench.world.add(name="it", body='{"fails": true}')
    each_bench.database.lose_reply("conclude_all")
    runner = each_bench.run(queue)
    assert (await each_bench.until(task_id, Status.FAILURE)).attempts == 1
    await eventually_async(lambda: runner.in_flight == 0)
    assert (ran, each_bench.world.outcomes(task_id)) == ([task_id], ["failure"])
    assert each_bench.of(ClaimLost) == []


async def test_a_row_that_this_process_holds_without_knowing_is_given_back(each_bench: Bench, gates: Gates) -> None:
    world = each_bench.world
    claimer = world.claimer()
    stray = world.add(name="gated")
    world.take_one(claimer)  # its answer never reached the runner
    each_bench.run(gates.queue, claimer)
    await eventually_async(lambda: each_bench.of(StrayReleased))
    assert world.outcomes(stray) == ["released"]
    gates.open("")
    assert (await each_bench.until(stray, Status.DONE)).attempts == 0


async def test_outcomes_are_kept_while_the_database_is_away_and_nothing_new_is_claimed(
    each_bench: Bench, gates: Gates
) -> None:
    world, database = each_bench.world, each_bench.database
    running = [world.add(name="gated", body=f'{{"key": "{n}"}}') for n in range(3)]
    each_bench.run(gates.queue, count=10)
    await eventually_async(lambda: len(gates.began) == 3)
    outage = database.away()
    gates.open("0", "1", "2")
    tried = database.calls["complete"]
    await eventually_async(lambda: database.calls["complete"] > tried + 1)
    await eventually_async(lambda: each_bench.of(DatabaseLost))  # twice, if an answer was still under way
    outage.heal()
    late = world.add(name="gated", body='{"key": "0"}')
    for task_id in [*running, late]:
        task = await each_bench.until(task_id, Status.DONE)
        assert (task.attempts, task.lease) == (0, 1)
    await eventually_async(lambda: len(each_bench.of(DatabaseFound)) == len(each_bench.of(DatabaseLost)))
    assert len(gates.began) == 4


async def test_a_database_that_is_away_does_not_end_the_process_while_it_looks_for_lonely_tasks(
    bench: Bench, gates: Gates
) -> None:
    task_id = bench.world.add(name="gated")
    bench.run(gates.queue, count=2)
    await eventually_async(lambda: gates.began)
    bench.database.fail("should_run_empty", times=None)
    looks = bench.database.calls["should_run_empty"]
    await eventually_async(lambda: bench.database.calls["should_run_empty"] > looks + 1)
    assert bench.of(DatabaseLost)
    assert bench.of(ComponentFailed) == []
    gates.open("")
    await bench.until(task_id, Status.DONE)


async def test_progress_that_could_not_be_written_is_written_when_the_database_is_back(bench: Bench) -> None:
    queue, said, go_on = Queue("q"), asyncio.Event(), asyncio.Event()

    @queue.task
    async def it(ctx: Context) -> None:
        bench.database.away()
        await ctx.progress(0.5, "half of it")
        said.set()
        await go_on.wait()

    task_id = bench.world.add(name="it")
    bench.run(queue)
    await said.wait()
    await eventually_async(lambda: bench.database.calls["report_progress"])
    bench.database.heal()
    await eventually_async(lambda: bench.world.get(task_id).progress == 0.5)
    go_on.set()
    await bench.until(task_id, Status.DONE)


async def test_a_stop_while_the_database_is_away_keeps_the_outcome_until_it_is_cut(bench: Bench, gates: Gates) -> None:
    task_id = bench.world.add(name="gated")
    runner = bench.run(gates.queue)
    await eventually_async(lambda: gates.began)
    bench.database.away()
    gates.open("")
    stopping = asyncio.create_task(bench.stop(runner, grace=0.0))
    tried = bench.database.calls["complete"]
    await eventually_async(lambda: bench.database.calls["complete"] > tried)
    assert not stopping.done()
    bench.database.heal()
    await stopping
    assert bench.world.status(task_id) is Status.DONE


async def test_one_result_that_the_database_refuses_does_not_harm_those_written_with_it(
    each_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_writer, "GATHER", 0.5)
    queue, _ = counting()
    ids = [each_bench.world.add(name="it") for _ in range(3)]

    def holds_the_strange_one(_: int, results: Mapping[Held, str | None]) -> bool:
        return any(held.id == ids[1] for held in results)

    error = ValueError("this result is too strange")
    each_bench.database.fail("complete", times=None, error=error, when=holds_the_strange_one)
    each_bench.run(queue, count=3, delay_ratio=3600.0)
    for task_id in (ids[0], ids[2]):
        await each_bench.until(task_id, Status.DONE)
    strange = await each_bench.until(ids[1], Status.FAILURE)
    assert strange.error == "its outcome could not be written: ValueError: this result is too strange"
    assert strange.attempts == 1
    assert each_bench.uncaught == []


async def test_a_task_about_which_nothing_can_be_written_stays_held_and_taints_the_process(bench: Bench) -> None:
    queue, ran = counting()
    task_id = bench.world.add(name="it")
    for operation in ("complete", "conclude_all"):
        bench.database.fail(operation, times=None, error=ValueError("no"))
    bench.run(queue, update=0.05)
    await eventually_async(lambda: bench.uncaught)
    assert "outcome of task" in bench.uncaught[0]["message"]
    touched = bench.world.get(task_id).checked_at
    await eventually_async(lambda: bench.world.get(task_id).checked_at != touched)
    assert (bench.world.status(task_id), ran) == (Status.WORKING, [task_id])
    assert bench.of(StrayReleased) == []


async def test_a_claim_that_fails_unexpectedly_is_tried_again_and_what_runs_goes_on(bench: Bench, gates: Gates) -> None:
    first = bench.world.add(name="gated", body='{"key": "first"}')
    bench.run(gates.queue, count=2)
    await eventually_async(lambda: gates.began)
    refusal = bench.database.fail("claim", times=None, error=ValueError("no such column"))
    second = bench.world.add(name="gated", body='{"key": "second"}')
    await eventually_async(lambda: len(bench.of(ComponentFailed)) >= 2)
    gates.open("first", "second")
    await bench.until(first, Status.DONE)
    refusal.heal()
    await bench.until(second, Status.DONE)
    assert {fact.component for fact in bench.of(ComponentFailed)} == {"claim"}


async def test_a_touch_that_crosses_the_last_write_does_not_say_that_the_task_was_taken(bench: Bench) -> None:
    queue, _ = counting()
    task_id = bench.world.add(name="it")
    reply = bench.database.hold_reply("complete")
    runner = bench.run(queue, update=0.05)
    await eventually_async(lambda: reply.hits)
    touches = bench.database.calls["touch"]
    await eventually_async(lambda: bench.database.calls["touch"] > touches + 1)
    reply.heal()
    await eventually_async(lambda: runner.in_flight == 0)
    assert bench.world.status(task_id) is Status.DONE
    assert bench.of(ClaimLost) == []


async def test_two_processes_never_run_one_task_twice_whatever_answers_are_lost(each_bench: Bench) -> None:
    queue, ran = counting()
    ids = [each_bench.world.add(name="it") for _ in range(60)]
    for operation in ("claim", "complete"):
        each_bench.database.lose_reply(operation, times=6)
    runners = [each_bench.run(queue, count=5) for _ in range(2)]
    for task_id in ids:
        task = await each_bench.until(task_id, Status.DONE)
        assert task.result == str(task_id)
    await eventually_async(lambda: not any(runner.in_flight for runner in runners))
    assert sorted(ran) == ids


async def test_a_reader_of_events_that_fails_is_reported_and_leaves_nothing_in_flight(bench: Bench) -> None:
    class Whole(TaskWorker):
        queues = ("q",)

        async def handle_task(self, task: Task) -> None: ...

    def fails(fact: Fact) -> None:
        if isinstance(fact, AttemptEnded):
            raise OSError("no room for the log")

    worker = Whole()
    ids = [bench.world.add() for _ in range(3)]
    runner = bench.run(worker, count=3)
    worker.events.listen(fails)
    for task_id in ids:
        await bench.until(task_id, Status.DONE)
    await eventually_async(lambda: runner.ended_count == 3 and runner.in_flight == 0)
    messages = {f"what follows the outcome of task {task_id} failed" for task_id in ids}
    assert {context["message"] for context in bench.uncaught} == messages
    bench.uncaught.clear()
