"""One attempt: every way in which user code can end, and what becomes of the task."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peerd import Cancel, Context, Dead, Queue, Retry, Snooze, Status, Task, TaskWorker
from peerd.domain.outcome import Canceled, Done, Failed, Outcome, Released, Snoozed
from peerd.runtime.events import AttemptLingers, Events, Fact, HookFailed
from peerd.runtime.wording import worded
from peerd.testing import eventually_async, make_task, run_inline, run_row
from peerd.work import execute
from peerd.work.execute import Because, Execution, TimeLimits
from peerd.work.task_worker import QueueWorker
from tests.unit.work import declared


def execution(queue: Queue, name: str, body: str = "{}", **more: Any) -> Execution:
    task = make_task(queue=queue.name, name=name, body=body)
    ctx = Context(task, node="n", report=lambda _: None)
    options: dict[str, Any] = {"events": Events(), **more}
    limits = TimeLimits(**{key: options.pop(key) for key in TimeLimits._fields if key in options})
    return Execution(QueueWorker([queue]).code_for(task), ctx, limits, **options)


async def ended_after(running: Execution, because: Because, started: asyncio.Event | threading.Event) -> Outcome:
    outcome = asyncio.ensure_future(running.outcome())
    await eventually_async(started.is_set)
    running.end(because)
    return await outcome


ASKED = [
    (Retry("10s", "not yet"), Failed(error="not yet", retry_in=10.0)),
    (Retry(), Failed(error="the handler asked for another attempt", retry_in=300.0)),
    (Snooze("1h", "tired"), Snoozed(3600.0, "tired")),
    (Cancel("nobody"), Canceled("nobody")),
    (Cancel(), Canceled("the handler canceled it")),
    (Dead("no video"), Failed(error="no video")),
]


@pytest.mark.parametrize(("asked", "outcome"), ASKED)
@pytest.mark.parametrize("raises", [False, True], ids=["returned", "raised"])
@pytest.mark.parametrize("thread", [False, True], ids=["coroutine", "thread"])
async def test_an_outcome_counts_whether_it_is_returned_or_raised(
    asked: Exception,
    outcome: Outcome,
    raises: bool,  # noqa: FBT001
    thread: bool,  # noqa: FBT001
) -> None:
    queue = Queue("q")

    def plain() -> object:
        if raises:
            raise asked
        return asked

    async def coroutine() -> object:
        return plain()

    queue.task(name="it")(plain if thread else coroutine)
    assert await execution(queue, "it").outcome() == outcome


async def test_a_value_is_done_with_its_json() -> None:
    queue = Queue("q")

    @queue.task
    async def it(n: int) -> dict[str, Any]:
        return {"n": n, "at": Path("/a")}

    assert await execution(queue, "it", '{"n": 3}').outcome() == Done('{"n":3,"at":"/a"}')
    assert (await run_inline(it.with_args(3))).result == {"n": 3, "at": "/a"}


class Odd:
    """Asked what it is, it fails in a way of its own."""

    @property
    def __dataclass_fields__(self) -> Any:
        raise OverflowError("odd")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "not JSON"),
        ("\ud800", "not JSON"),
        (Odd(), "not JSON"),
        ("x" * (1 << 20), "more than 1048576"),
        (Dead, "class Dead"),
    ],
)
async def test_a_result_that_cannot_be_kept_makes_the_task_dead_with_words(value: object, says: str) -> None:
    queue = Queue("q")

    @queue.task
    async def it() -> object:
        return value

    ran = await run_inline(it.with_args())
    assert ran.status is Status.DEAD
    assert says in str(ran.error)


async def test_an_exception_is_retried_with_its_traceback_as_retry_on_and_discard_on_say() -> None:
    queue = Queue("q")

    @queue.task(retry_on=(OSError,))
    async def it(kind: str) -> None:
        raise {"os": OSError, "value": ValueError}[kind]("boom")

    retried = await run_inline(it.with_args("os"))
    assert (retried.status, retried.retry_in, retried.error) == (Status.FAILURE, 300.0, "OSError: boom")
    assert "in it" in str(retried.traceback)
    assert (await run_inline(it.with_args("value"))).status is Status.DEAD
    assert (await run_inline(it.with_args("os"), attempts=2)).status is Status.DEAD


async def test_the_first_retry_waits_for_one_delay_ratio_and_the_second_for_two() -> None:
    class Legacy(TaskWorker):
        queues = ("legacy",)
        delay_ratio = "10s"

        async def handle_task(self, task: Task) -> None:
            raise ValueError("no")

    assert [(await run_row(Legacy(), attempts=n)).retry_in for n in (0, 1)] == [10.0, 20.0]


async def test_the_delay_can_be_overridden() -> None:
    class Legacy(TaskWorker):
        queues = ("legacy",)

        def handle_task(self, task: Task) -> None:
            raise ValueError("no")

        def delay(self, task: Task) -> float:
            return 1000.0 + task.attempts

    assert (await run_row(Legacy())).retry_in == 1001.0


@pytest.mark.parametrize("delay", [float("nan"), "soon", None])
async def test_a_delay_that_makes_no_sense_does_not_lose_the_task(delay: Any) -> None:
    queue = Queue("q")
    queue.task(name="it", backoff=lambda _: delay)(lambda: 1 / 0)
    ran = await run_inline(queue.handlers["it"].with_args())
    assert ran.status is Status.FAILURE
    assert (ran.retry_in, ran.error) == (execute.FALLBACK_DELAY, "ZeroDivisionError: division by zero")
    assert [fact.hook for fact in ran.events if isinstance(fact, HookFailed)] == ["delay"]


async def test_a_backoff_that_raises_does_not_lose_the_task() -> None:
    queue = Queue("q")
    queue.task(name="it", backoff=lambda attempts: attempts / 0)(lambda: 1 / 0)
    assert (await run_inline(queue.handlers["it"].with_args())).status is Status.FAILURE


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("thread", [False, True], ids=["coroutine", "thread"])
async def test_leaving_the_interpreter_ends_the_attempt_and_not_the_process(
    error: BaseException,
    thread: bool,  # noqa: FBT001
) -> None:
    queue = Queue("q")

    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    queue.task(name="it")(plain if thread else coroutine)
    ran = await run_inline(queue.handlers["it"].with_args())
    assert ran.status is Status.FAILURE
    assert type(error).__name__ in str(ran.error)


async def test_a_body_that_does_not_fit_is_dead_and_names_the_argument() -> None:
    queue = Queue("q")

    @queue.task
    async def it(height: int) -> None: ...

    outcome = await execution(queue, "it", '{"height": "tall"}').outcome()
    assert outcome == Failed(error="it: Expected `int`, got `str` - at `$.height`")


async def test_a_task_without_a_handler_is_dead_and_names_those_that_are() -> None:
    queue = Queue("q")
    queue.task(name="this")(lambda: None)
    outcome = await execution(queue, "that").outcome()
    assert outcome == Failed(error="queue q has no handler named 'that'; its handlers are: this")


async def test_a_coroutine_is_cancelled_at_its_timeout() -> None:
    queue = Queue("q")

    @queue.task(timeout=0.05)
    async def it() -> None:
        await asyncio.sleep(60)

    ran = await run_inline(it.with_args())
    assert (ran.status, ran.error) == (Status.FAILURE, "it ran longer than its timeout of 50ms")


async def test_a_thread_hears_of_its_timeout_and_what_it_returns_late_does_not_count() -> None:
    queue = Queue("q")

    @queue.task(timeout=0.05)
    def it(ctx: Context) -> str:
        while not ctx.cancelled:
            time.sleep(0.005)
        return "late"

    ran = await run_inline(it.with_args())
    assert (ran.status, ran.error) == (Status.FAILURE, "it ran longer than its timeout of 50ms")


async def test_an_attempt_is_ended_when_the_finish_at_of_its_task_comes() -> None:
    queue = Queue("q")

    @queue.task
    async def it() -> None:
        await asyncio.sleep(60)

    assert await execution(queue, "it", until_finish=0.02).outcome() == Canceled("its finish_at came while it ran")


async def test_a_coroutine_that_catches_its_cancellation_and_finishes_is_done() -> None:
    queue, started = Queue("q"), asyncio.Event()

    @queue.task
    async def it() -> str:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "saved"

    assert await ended_after(execution(queue, "it"), Because.STOPPING, started) == Done('"saved"')


async def test_a_coroutine_that_catches_its_cancellation_may_ask_for_an_outcome() -> None:
    queue, started = Queue("q"), asyncio.Event()

    @queue.task
    async def it() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Snooze("5m", "interrupted") from None

    assert await ended_after(execution(queue, "it"), Because.STOPPING, started) == Snoozed(300.0, "interrupted")


async def test_an_exception_that_comes_of_a_cancellation_is_not_the_tasks_failure() -> None:
    queue, started = Queue("q"), asyncio.Event()

    @queue.task
    async def it() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise OSError("closed already")

    outcome = await ended_after(execution(queue, "it"), Because.STOPPING, started)
    assert outcome == Released("its process was stopped")


@pytest.mark.parametrize(("looks", "outcome"), [(True, Released("its process was stopped")), (False, Done('"whole"'))])
async def test_a_thread_that_never_saw_that_it_was_cancelled_has_finished_its_work(
    looks: bool,  # noqa: FBT001
    outcome: Outcome,
) -> None:
    queue, started, go_on = Queue("q"), threading.Event(), threading.Event()

    @queue.task
    def it(ctx: Context) -> str:
        started.set()
        go_on.wait(10)
        return "half" if looks and ctx.cancelled else "whole"

    running = execution(queue, "it")
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(started.is_set)
    running.end(Because.STOPPING)
    go_on.set()
    assert await ending == outcome


async def test_a_handler_that_was_told_to_end_before_it_began_does_not_begin() -> None:
    queue, ran = Queue("q"), []

    @queue.task
    async def it() -> None:
        ran.append(1)

    running = execution(queue, "it")
    running.end(Because.STOPPING)
    assert await running.outcome() == Released("its process was stopped")
    assert ran == []


async def test_a_handler_that_goes_on_although_it_was_told_to_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "LINGERS_AFTER", 0.01)
    queue, started, facts = Queue("q"), threading.Event(), list[Fact]()
    go_on = threading.Event()

    @queue.task
    def it() -> None:
        started.set()
        go_on.wait(10)

    running = execution(queue, "it", events=Events(facts.append))
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(started.is_set)
    running.end(Because.TIMEOUT)
    await eventually_async(lambda: facts)
    go_on.set()
    await ending
    assert facts == [AttemptLingers(task_id=1, queue="q", name="it", because="timeout")]


async def test_hooks_stand_around_an_attempt_and_hear_its_outcome() -> None:
    queue, seen = Queue("q"), list[object]()

    @queue.task
    async def it(n: int) -> int:
        seen.append("run")
        return n

    @queue.before_attempt
    async def first(ctx: Context) -> None:
        seen.append(("before", ctx.task.name))

    @queue.after_attempt
    def last(ctx: Context, outcome: Outcome) -> None:
        seen.append(("after", outcome))

    await run_inline(it.with_args(4))
    assert seen == [("before", "it"), "run", ("after", Done("4"))]


async def test_a_hook_before_an_attempt_can_fail_it_and_one_after_it_cannot() -> None:
    queue = Queue("q")

    @queue.task
    async def it() -> int:
        return 1

    queue.after_attempt(lambda ctx, outcome: sys.exit(3))
    after = await run_inline(it.with_args())
    assert (after.status, after.result) == (Status.DONE, 1)
    [failed] = after.events
    assert isinstance(failed, HookFailed)
    assert (failed.hook, failed.error) == ("after_attempt", "SystemExit: 3")
    assert "in <lambda>" in str(worded(failed)[2]["exception"])
    queue.before_attempt(lambda ctx: Path("/nowhere/at/all").touch())
    before = await run_inline(it.with_args())
    assert (before.status, str(before.error)[:17]) == (Status.FAILURE, "FileNotFoundError")


async def test_a_hook_after_an_attempt_that_does_not_end_leaves_the_outcome_as_it_is() -> None:
    queue, facts = Queue("q"), list[Fact]()

    @queue.task
    async def it() -> int:
        return 1

    @queue.after_attempt
    async def hangs(ctx: Context, outcome: Outcome) -> None:
        while True:  # it does not even let itself be cancelled
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000 if not facts else 0.3)
            if facts:
                return

    running = execution(queue, "it", events=Events(facts.append), hook_timeout=0.05)
    assert await running.outcome() == Done("1")
    [failed] = facts
    assert isinstance(failed, HookFailed)
    assert failed.error == "it took longer than its hook_timeout of 50ms, and was cancelled"


async def test_a_stop_does_not_wait_for_a_hook_after_an_attempt() -> None:
    queue, begun = Queue("q"), asyncio.Event()

    @queue.task
    async def it() -> int:
        return 1

    @queue.after_attempt
    async def hangs(ctx: Context, outcome: Outcome) -> None:
        begun.set()
        await asyncio.sleep(1000)

    assert await ended_after(execution(queue, "it"), Because.STOPPING, begun) == Done("1")


async def test_a_hook_before_an_attempt_that_does_not_end_fails_it() -> None:
    queue = Queue("q")

    @queue.task
    async def it() -> int:
        return 1

    @queue.before_attempt
    async def hangs(ctx: Context) -> None:
        await asyncio.sleep(1000)

    outcome = await execution(queue, "it", hook_timeout=0.05).outcome()
    error = "its hooks before the attempt took longer than its hook_timeout of 50ms"
    assert outcome == Failed(error=error, retry_in=300.0)


class Unspeakable(Exception):
    """It cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


@pytest.mark.parametrize("thread", [False, True], ids=["coroutine", "thread"])
@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (Unspeakable(), Status.FAILURE, "Unspeakable: (its __str__ raised ValueError)"),
        (
            type("Leaving", (SystemExit,), {"__str__": Unspeakable.__str__})(3),
            Status.FAILURE,
            "(its __str__ raised ValueError)",
        ),
        (Dead(Unspeakable()), Status.DEAD, "Unspeakable: (its __str__ raised ValueError)"),  # type: ignore[arg-type]
        (Dead(ValueError("no video")), Status.DEAD, "no video"),  # type: ignore[arg-type]
    ],
)
async def test_an_exception_that_cannot_be_worded_is_an_outcome_as_any_other(
    error: BaseException,
    status: Status,
    says: str,
    thread: bool,  # noqa: FBT001
) -> None:
    queue = Queue("q")

    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    queue.task(name="it")(plain if thread else coroutine)
    outcome = await execution(queue, "it").outcome()
    assert isinstance(outcome, Failed)
    assert (outcome.retry_in is None) is (status is Status.DEAD)
    assert says in outcome.error


async def test_a_whole_row_worker_finds_its_context_and_reports_progress() -> None:
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


# ---------------------------------------------------------------- handlers in processes of their own


async def test_a_handler_in_a_process_returns_and_reports() -> None:
    ran = await run_inline(declared.double.with_args(21), node="here")
    assert (ran.result, ran.progress) == (42, [(0.5, "on here")])


async def test_exceptions_and_outcomes_come_out_of_a_process() -> None:
    retried = await run_inline(declared.raises.with_args("value"))
    assert (retried.status, retried.error) == (Status.FAILURE, "ValueError: boom")
    assert "in raises" in str(retried.traceback)
    assert (await run_inline(declared.raises.with_args("key"))).status is Status.DEAD
    assert (await run_inline(declared.asks.with_args("retry"))).retry_in == 7.0
    assert (await run_inline(declared.asks.with_args("dead"))).status is Status.DEAD
    assert "SystemExit" in str((await run_inline(declared.exits.with_args())).error)


async def test_an_exception_that_cannot_be_worded_comes_out_of_a_process_too() -> None:
    ran = await run_inline(declared.raises_what_cannot_be_worded.with_args())
    assert (ran.status, ran.error) == (Status.FAILURE, "Unspeakable: (its __str__ raised ValueError)")


async def test_a_process_that_ends_without_an_answer_is_a_failure() -> None:
    ran = await run_inline(declared.leaves.with_args(5))
    assert (ran.status, ran.error) == (
        Status.FAILURE, "ProcessDied: the handler's process ended with status 5 before it answered",
    )  # fmt: skip


async def test_a_large_result_comes_out_of_a_process_and_a_larger_one_is_refused() -> None:
    assert len((await run_inline(declared.large.with_args(900_000))).result) == 900_000
    assert "more than 1048576" in str((await run_inline(declared.large.with_args(2_000_000))).error)


async def test_a_timeout_kills_the_process_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    running = execution(declared.apart, "starts_a_child", f'{{"pids": "{pids}"}}')
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(pids.exists, timeout=30)
    running.end(Because.TIMEOUT)
    outcome = await ending
    assert isinstance(outcome, Failed)
    assert outcome.label == "timeout"
    for pid in map(int, pids.read_text().split()):
        await eventually_async(partial(_is_dead, pid))


def _is_dead(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
