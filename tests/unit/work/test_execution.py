from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from peerd import Context, Queue, Snooze, Status, Task, TaskWorker
from peerd.domain.outcome import Canceled, Done, Failed, Outcome, Released, Snoozed
from peerd.runtime import os_processes
from peerd.runtime.observability.events import AttemptHookFailed, Event, EventBus
from peerd.runtime.observability.log_messages import attempt_unresponsive, log_message_of
from peerd.testing import eventually_async, run_inline, run_row
from peerd.work import attempt_execution
from peerd.work.attempt_outcome import StopReason
from tests.support.rows import rows
from tests.unit.work import process_handlers
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

    released = Released("its process was stopped")
    ends = {"finishes": Done('"saved"'), "chooses": Snoozed(300.0, "interrupted"), "raises": released}
    for how, outcome in ends.items():
        started.clear()
        running = execution(queue, "it", f'{{"how": "{how}"}}')
        assert await ended_after(running, StopReason.STOPPING, started) == outcome
    started.clear()
    running = execution(queue, "it", '{"how": "begins"}')
    running.end(StopReason.STOPPING)
    assert (await running.outcome(), started.is_set()) == (released, False)


@rows("checks, outcome", [(True, Released("its process was stopped")), (False, Done('"whole"'))])
async def test_a_thread_that_did_not_check_its_cancellation_is_done(*, checks: bool, outcome: Outcome) -> None:
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
    assert events == [attempt_unresponsive(1, "q", "it", "timeout")]


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


async def test_a_hook_before_an_attempt_can_fail_it_and_one_after_it_cannot() -> None:
    queue, seen = Queue("q"), list[object]()

    @queue.task
    async def it() -> int:
        seen.append("run")
        return 1

    queue.before_attempt(lambda ctx: seen.append(ctx.task.name))
    queue.after_attempt(lambda ctx, outcome: seen.append(outcome))
    queue.after_attempt(lambda ctx, outcome: sys.exit(3))
    after = await run_inline(it.with_args())
    assert (after.status, after.result, seen) == (Status.DONE, 1, ["it", "run", Done("1")])
    [failed] = after.events
    assert isinstance(failed, AttemptHookFailed)
    assert (failed.hook, failed.error) == ("after_attempt", "SystemExit: 3")
    assert "in <lambda>" in str(log_message_of(failed)[2]["exception"])
    queue.before_attempt(lambda ctx: Path("/nowhere/at/all").touch())
    before = await run_inline(it.with_args())
    assert (before.status, str(before.error)[:17]) == (Status.FAILURE, "FileNotFoundError")


async def test_a_hook_after_an_attempt_that_does_not_end_leaves_the_outcome_as_it_is_and_a_stop_does_not_wait() -> None:
    queue, events, begun = Queue("q"), list[Event](), asyncio.Event()
    queue.task(name="it")(lambda: 1)

    @queue.after_attempt
    async def hangs(ctx: Context, outcome: Outcome) -> None:
        begun.set()
        while True:  # it does not even let itself be cancelled
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000 if not events else 0.3)
            if events:
                return

    running = execution(queue, "it", events=EventBus(events.append), hook_timeout=0.05)
    assert await running.outcome() == Done("1")
    [failed] = events
    assert isinstance(failed, AttemptHookFailed)
    assert failed.error == "it took longer than its hook_timeout of 50ms, and was cancelled"
    begun.clear()
    assert await ended_after(execution(queue, "it"), StopReason.STOPPING, begun) == Done("1")
    queue.before_attempt(lambda ctx: asyncio.sleep(1000))
    error = "its hooks before the attempt took longer than its hook_timeout of 50ms"
    assert await execution(queue, "it", hook_timeout=0.05).outcome() == Failed(error=error, retry_in=300.0)


async def test_results_exceptions_and_outcomes_are_returned_from_a_process() -> None:
    retried = await run_inline(process_handlers.raises.with_args("value"))
    assert (retried.status, retried.error) == (Status.FAILURE, "ValueError: boom")
    assert "in raises" in str(retried.traceback)
    assert (await run_inline(process_handlers.raises.with_args("key"))).status is Status.DEAD
    assert (await run_inline(process_handlers.returns_outcome.with_args("retry"))).retry_in == 7.0
    assert (await run_inline(process_handlers.returns_outcome.with_args("dead"))).status is Status.DEAD
    for handler, error in (
        (process_handlers.exits.with_args(), "SystemExit: 4"),
        (process_handlers.raises_without_text.with_args(), "WithoutText: (its __str__ raised ValueError)"),
        (
            process_handlers.leaves.with_args(5),
            "HandlerProcessDied: the handler's process ended with status 5 before it answered",
        ),
    ):
        ran = await run_inline(handler)
        assert (ran.status, ran.error) == (Status.FAILURE, error)
    ran = await run_inline(process_handlers.double.with_args(21), node="here")
    assert (ran.result, ran.progress) == (42, [(0.5, "on here")])
    assert len((await run_inline(process_handlers.large.with_args(900_000))).result) == 900_000
    assert "more than 1048576" in str((await run_inline(process_handlers.large.with_args(2_000_000))).error)


async def test_a_timeout_kills_the_process_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    running = execution(process_handlers.apart, "starts_a_child", f'{{"pids": "{pids}"}}')
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(pids.exists)
    running.end(StopReason.TIMEOUT)
    outcome = await ending
    assert isinstance(outcome, Failed)
    assert outcome.label == "timeout"
    await eventually_async(lambda: not any(map(is_alive, pids.read_text().split())))


async def test_a_process_that_cannot_start_for_want_of_descriptors_leaves_none_open_and_does_not_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = f'{{"pids": "{tmp_path / "pids"}"}}'

    async def is_refused() -> None:
        outcome = await execution(process_handlers.apart, "starts_a_child", arguments).outcome()
        assert isinstance(outcome, Failed)
        assert "Too many open files" in outcome.error

    def full(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    open_before, processes_before = descriptors(), set(os_processes.descendants(os.getpid()))
    unused = [number for number in range(1000) if number not in open_before]
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in range(6):
        resource.setrlimit(resource.RLIMIT_NOFILE, (unused[free], most))
        try:
            await is_refused()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    monkeypatch.setattr(os, "pidfd_open", full)  # the process has started, and another thread took the last descriptor
    await is_refused()
    assert descriptors() == open_before
    assert set(os_processes.descendants(os.getpid())) <= processes_before


def descriptors() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


def is_alive(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
