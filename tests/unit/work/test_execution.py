from __future__ import annotations

import asyncio
import threading
import time

import pytest

from peerd import Context, Queue, Snooze, Status, Task, TaskWorker
from peerd.domain.outcome import Canceled, Done, Outcome, Released, Snoozed
from peerd.runtime.observability.events import AttemptUnresponsive, Event, EventBus
from peerd.testing import eventually_async, run_inline, run_row
from peerd.work.attempts import attempt_execution
from peerd.work.attempts.attempt_outcome import StopReason
from tests.support.rows import rows
from tests.unit.work.run_execution import ended_after, execution


async def test_an_attempt_is_ended_at_its_timeout_and_when_the_finish_at_of_its_task_comes() -> None:
    queue = Queue("q")

    @queue.task(timeout=0.05)
    async def sleeps() -> None:
        await asyncio.sleep(60)

    @queue.task(timeout=0.05)
    def in_a_thread(ctx: Context) -> str:
        while not ctx.cancelled:
            time.sleep(0.005)
        return "late"

    for call in (sleeps.with_args(), in_a_thread.with_args()):
        ran = await run_inline(call)
        assert (ran.status, ran.error) == (Status.FAILURE, "it ran longer than its timeout of 50ms")
    ended = await execution(queue, "sleeps", until_finish=0.02).outcome()
    assert ended == Canceled("its finish_at came while it ran")


async def test_a_coroutine_that_is_cancelled_may_finish_or_choose_an_outcome_and_its_exception_is_no_failure() -> None:
    queue, started = Queue("q"), asyncio.Event()

    @queue.task
    async def it(how: str) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if how == "raises":
                raise OSError("closed already") from None
            if how == "chooses":
                raise Snooze("5m", "interrupted") from None
        return "saved"

    for how, outcome in (
        ("finishes", Done('"saved"')),
        ("chooses", Snoozed(300.0, "interrupted")),
        ("raises", Released("its process was stopped")),
    ):
        started.clear()
        running = execution(queue, "it", f'{{"how": "{how}"}}')
        assert await ended_after(running, StopReason.STOPPING, started) == outcome
    started.clear()
    running = execution(queue, "it", '{"how": "begins"}')
    running.end(StopReason.STOPPING)
    assert (await running.outcome(), started.is_set()) == (Released("its process was stopped"), False)


@rows("checks, outcome", [(True, Released("its process was stopped")), (False, Done('"whole"'))])
async def test_a_thread_that_did_not_check_its_cancellation_is_done(
    checks: bool,  # noqa: FBT001
    outcome: Outcome,
) -> None:
    queue, started, resume = Queue("q"), threading.Event(), threading.Event()

    @queue.task
    def it(ctx: Context) -> str:
        started.set()
        resume.wait(10)
        return "half" if checks and ctx.cancelled else "whole"

    running = execution(queue, "it")
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(started.is_set)
    running.end(StopReason.STOPPING)
    resume.set()
    assert await ending == outcome


async def test_a_handler_that_continues_although_it_was_cancelled_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_execution, "REPORT_LINGERING_AFTER", 0.01)
    queue, started, events = Queue("q"), threading.Event(), list[Event]()
    resume = threading.Event()

    @queue.task
    def it() -> None:
        started.set()
        resume.wait(10)

    running = execution(queue, "it", events=EventBus(events.append))
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(started.is_set)
    running.end(StopReason.TIMEOUT)
    await eventually_async(lambda: events)
    resume.set()
    await ending
    assert events == [AttemptUnresponsive(task_id=1, queue="q", name="it", stop_reason="timeout")]


async def test_a_whole_row_worker_has_its_context_and_reports_progress() -> None:
    class Legacy(TaskWorker):
        queues = ("legacy",)

        async def handle_task(self, task: Task) -> str:
            await self.set_progress(task, 7.0, "n" * 300)
            return self.context(task).node

    worker = Legacy()
    ran = await run_row(worker, "{")
    assert (ran.result, ran.progress[0][0]) == ("inline", 1.0)
    assert 200 < len(ran.progress[0][1] or "") <= 255
    assert worker.contexts == {}
