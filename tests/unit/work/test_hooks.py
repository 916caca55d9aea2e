from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from peerd import Context, Queue, Status
from peerd.domain.outcome import Done, Failed, Outcome
from peerd.runtime.observability.events import AttemptHookFailed, Event, EventBus
from peerd.runtime.observability.log_messages import log_message_of
from peerd.testing import run_inline
from peerd.work.attempts.attempt_outcome import StopReason
from tests.unit.work.run_execution import ended_after, execution


async def test_hooks_run_before_and_after_an_attempt_and_receive_its_outcome() -> None:
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
    assert isinstance(failed, AttemptHookFailed)
    assert (failed.hook, failed.error) == ("after_attempt", "SystemExit: 3")
    assert "in <lambda>" in str(log_message_of(failed)[2]["exception"])
    queue.before_attempt(lambda ctx: Path("/nowhere/at/all").touch())
    before = await run_inline(it.with_args())
    assert (before.status, str(before.error)[:17]) == (Status.FAILURE, "FileNotFoundError")


async def test_a_hook_after_an_attempt_that_does_not_end_leaves_the_outcome_as_it_is_and_a_stop_does_not_wait() -> None:
    queue, events, begun = Queue("q"), list[Event](), asyncio.Event()

    @queue.task
    async def it() -> int:
        return 1

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
