"""Answers that are lost, a database that is away or refuses: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping

import pytest

from peerd import Context, Queue, Status, Task, TaskWorker
from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import (
    AttemptEnded,
    ClaimLost,
    ComponentFailed,
    DatabaseOutageEnded,
    DatabaseOutageStarted,
    Event,
    EventBus,
    UnknownClaimReleased,
)
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import ClaimId
from peerd.testing import EventRecorder, eventually_async
from peerd.work import outcome_writer
from tests.work.harness import Gates, RunnerHarness

pytestmark = pytest.mark.every_database


def counting() -> tuple[Queue, list[int]]:
    """A queue whose handler ``it`` records each run."""
    queue, ran = Queue("q"), list[int]()

    @queue.task
    async def it(ctx: Context) -> int:
        ran.append(ctx.task.id)
        return ctx.task.id

    return queue, ran


async def test_an_outage_is_waited_out_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Exception | None] = iter([DatabaseUnavailable("gone")] * 5 + [None])
    events, pauses = list[Event](), list[float]()

    async def attempt() -> str:
        if error := next(answers):
            raise error
        return "found"

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    tracker = OutageTracker(EventBus(events.append), time.monotonic)
    assert await tracker.retry_while_down(attempt) == "found"
    assert len(pauses) == 5
    assert pauses[-1] > pauses[0] > 0
    assert [type(event) for event in events] == [DatabaseOutageStarted, DatabaseOutageEnded]


async def test_an_unknown_claim_of_this_process_is_released(each_harness: RunnerHarness, gates: Gates) -> None:
    world = each_harness.world
    claimer = world.claimer()
    unknown = world.add(name="gated")
    world.take_one(claimer)  # its answer never reached the runner
    each_harness.run(gates.queue, claimer)
    await eventually_async(lambda: each_harness.of(UnknownClaimReleased))
    assert world.outcomes(unknown) == ["released"]
    gates.open("")
    assert (await each_harness.until(unknown, Status.DONE)).attempts == 0


async def test_outcomes_are_kept_while_the_database_is_away_and_nothing_new_is_claimed(
    each_harness: RunnerHarness, gates: Gates
) -> None:
    world, database = each_harness.world, each_harness.database
    running = [world.add(name="gated", body=f'{{"key": "{n}"}}') for n in range(3)]
    each_harness.run(gates.queue, count=10)
    await eventually_async(lambda: len(gates.began) == 3)
    outage = database.away()
    gates.open("0", "1", "2")
    tried = database.calls["complete"]
    await eventually_async(lambda: database.calls["complete"] > tried + 1)
    await eventually_async(lambda: each_harness.of(DatabaseOutageStarted))  # twice, if an answer was still under way
    outage.heal()
    late = world.add(name="gated", body='{"key": "0"}')
    for task_id in [*running, late]:
        task = await each_harness.until(task_id, Status.DONE)
        assert (task.attempts, task.lease) == (0, 1)
    await eventually_async(
        lambda: len(each_harness.of(DatabaseOutageEnded)) == len(each_harness.of(DatabaseOutageStarted))
    )
    assert len(gates.began) == 4


async def test_a_database_that_is_away_does_not_end_the_process_while_it_searches_for_quarantined_tasks(
    harness: RunnerHarness, gates: Gates
) -> None:
    task_id = harness.world.add(name="gated")
    harness.run(gates.queue, count=2)
    await eventually_async(lambda: gates.began)
    harness.database.fail("should_empty_for_quarantined", times=None)
    queries = harness.database.calls["should_empty_for_quarantined"]
    await eventually_async(lambda: harness.database.calls["should_empty_for_quarantined"] > queries + 1)
    assert harness.of(DatabaseOutageStarted)
    assert harness.of(ComponentFailed) == []
    gates.open("")
    await harness.until(task_id, Status.DONE)


async def test_progress_that_could_not_be_written_is_written_when_the_database_is_back(harness: RunnerHarness) -> None:
    queue, reported, go_on = Queue("q"), asyncio.Event(), asyncio.Event()

    @queue.task
    async def it(ctx: Context) -> None:
        harness.database.away()
        await ctx.progress(0.25, "a quarter")
        await ctx.progress(0.5, "half of it")
        reported.set()
        await go_on.wait()

    task_id = harness.world.add(name="it")
    harness.run(queue)
    await reported.wait()
    await eventually_async(lambda: harness.database.calls["report_progress"])
    harness.database.heal()
    await eventually_async(lambda: harness.world.get(task_id).progress == 0.5)
    assert harness.world.get(task_id).progress_note == "half of it"
    go_on.set()
    await harness.until(task_id, Status.DONE)


async def test_a_stop_while_the_database_is_away_keeps_the_outcome_until_it_is_cut(
    harness: RunnerHarness, gates: Gates
) -> None:
    task_id = harness.world.add(name="gated")
    runner = harness.run(gates.queue)
    await eventually_async(lambda: gates.began)
    harness.database.away()
    gates.open("")
    stopping = asyncio.create_task(harness.stop(runner, grace=0.0))
    tried = harness.database.calls["complete"]
    await eventually_async(lambda: harness.database.calls["complete"] > tried)
    assert not stopping.done()
    harness.database.heal()
    await stopping
    assert harness.world.status(task_id) is Status.DONE


async def test_one_result_that_the_database_refuses_does_not_harm_those_written_with_it(
    each_harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_writer, "BATCH_DELAY", 0.5)
    queue, _ = counting()
    ids = [each_harness.world.add(name="it") for _ in range(3)]

    def holds_the_strange_one(_: int, results: Mapping[ClaimId, str | None]) -> bool:
        return any(held.id == ids[1] for held in results)

    error = ValueError("this result is too strange")
    each_harness.database.fail("complete", times=None, error=error, when=holds_the_strange_one)
    each_harness.run(queue, count=3, delay_ratio=3600.0)
    for task_id in (ids[0], ids[2]):
        await each_harness.until(task_id, Status.DONE)
    strange = await each_harness.until(ids[1], Status.FAILURE)
    assert strange.error == "its outcome could not be written: ValueError: this result is too strange"
    assert strange.attempts == 1
    assert each_harness.uncaught == []


async def test_outcomes_that_a_server_refuses_wait_until_it_takes_them_and_do_not_end_their_process(
    each_harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_writer, "RETRY_REFUSED_AFTER", 0.05)
    queue, ran = counting()
    ids = [each_harness.world.add(name="it") for _ in range(3)]
    refusal = ValueError("no write is possible")
    of_results = each_harness.database.fail("complete", times=None, error=refusal)
    each_harness.database.fail("record_outcomes", times=None, error=refusal)
    each_harness.run(queue, count=3, update=0.05)
    tried = each_harness.database.calls
    await eventually_async(lambda: min(tried["complete"], tried["record_outcomes"]) > 9)
    checked = each_harness.world.get(ids[0]).checked_at
    await eventually_async(lambda: each_harness.world.get(ids[0]).checked_at != checked)
    assert {each_harness.world.status(task_id) for task_id in ids} == {Status.WORKING}
    [failed] = each_harness.of(ComponentFailed)  # one a minute, however many are tried
    assert (failed.component, failed.error) == ("outcomes", "ValueError: no write is possible")
    of_results.heal()  # alone, so that no failure is written just before
    for task_id in ids:
        task = await each_harness.until(task_id, Status.DONE)
        assert (task.attempts, task.crashes, task.result) == (0, 0, str(task_id))
    assert (sorted(ran), each_harness.uncaught, each_harness.of(UnknownClaimReleased)) == (ids, [], [])


async def test_a_touch_that_crosses_the_last_write_does_not_report_that_the_task_was_taken(
    harness: RunnerHarness,
) -> None:
    queue, _ = counting()
    task_id = harness.world.add(name="it")
    reply = harness.database.hold_reply("complete")
    runner = harness.run(queue, update=0.05)
    await eventually_async(lambda: reply.hits)
    touches = harness.database.calls["touch"]
    await eventually_async(lambda: harness.database.calls["touch"] > touches + 1)
    reply.heal()
    await eventually_async(lambda: runner.in_flight == 0)
    assert harness.world.status(task_id) is Status.DONE
    assert harness.of(ClaimLost) == []


async def test_a_listener_that_raises_harms_neither_the_emitter_nor_the_listeners_after_it(
    harness: RunnerHarness,
) -> None:
    class Whole(TaskWorker):
        queues = ("q",)

        async def handle_task(self, task: Task) -> None: ...

    def fails(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            raise OSError("no room for the log")

    worker = Whole()
    ids = [harness.world.add() for _ in range(3)]
    runner = harness.run(worker, count=3)
    heard = EventRecorder()
    worker.events.listen(fails)
    worker.events.listen(heard)
    for task_id in ids:
        await harness.until(task_id, Status.DONE)
    await eventually_async(lambda: runner.executor_slots.ended_count == 3 and runner.in_flight == 0)
    assert sorted(event.task_id for event in heard.of(AttemptEnded)) == ids
    assert harness.uncaught == []
