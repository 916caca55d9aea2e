"""The handlers that the simulated workers run. Each reports its begin and its end to the world."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from peerd import Context, Queue, Retry, Snooze, TaskWorker
from peerd.domain.task import Task
from tests.simulation.plan import QUEUES, TUBE

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess


def process_of(ctx: Context) -> SimulatedProcess:
    process: SimulatedProcess = ctx.options["process"]
    return process


def reported(handler: Callable[..., Awaitable[Any]]) -> Any:
    """Report the begin and the end of a handler, also when it raises; its result is its lease, if it is done."""

    @functools.wraps(handler)
    async def run(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        process, claim, how = process_of(ctx), (ctx.task.id, ctx.task.lease), "raised"
        process.world.handler_began(process, claim, ctx)
        try:
            result = await handler(ctx, *args, **kwargs)
            if result is not None:
                return result
            how = "done"
            return ctx.task.lease
        finally:
            process.world.handler_ended(process, claim, how)

    return run


def _declare(queue: Queue) -> Queue:  # noqa: C901 - eight small handlers

    @queue.task
    @reported
    async def quick(ctx: Context, seconds: float) -> Any:
        await asyncio.sleep(seconds / 50)

    @queue.task
    @reported
    async def long(ctx: Context, seconds: float) -> Any:
        for part in range(4):
            await asyncio.sleep(seconds / 4)
            await ctx.progress(part / 4, "so far")

    @queue.task
    @reported
    async def flaky(ctx: Context, seconds: float) -> Any:
        await asyncio.sleep(seconds / 20)
        if ctx.task.attempts == 0:
            raise ValueError("the first attempt fails")
        return Retry(seconds / 10, "the second one requests another") if ctx.task.attempts == 1 else None

    @queue.task
    @reported
    async def snoozy(ctx: Context, seconds: float) -> Any:
        await asyncio.sleep(0.1)
        snoozed = process_of(ctx).world.snoozed
        is_new = ctx.task.id not in snoozed
        snoozed.add(ctx.task.id)
        return Snooze(seconds / 5, "later") if is_new else None

    @queue.task
    @reported
    async def stubborn(ctx: Context, seconds: float) -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds / 2)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds / 4)

    @queue.task
    @reported
    async def blocking(ctx: Context, seconds: float) -> Any:
        process_of(ctx).block_loop(seconds)
        await asyncio.sleep(0.0)

    @queue.task
    @reported
    async def poison(ctx: Context, seconds: float) -> Any:
        await asyncio.sleep(seconds / 50)
        process_of(ctx).kill("signal SIGSEGV")
        await asyncio.get_running_loop().create_future()

    @queue.task
    @reported
    async def parent(ctx: Context, seconds: float) -> Any:
        child = await ctx.enqueue(quick.with_args(seconds))
        world = process_of(ctx).world
        world.judge(world.rules.judge_accepted, child.id)

    return queue


def _declare_version(queue: Queue, *, new: bool) -> Queue:
    """Beside the others: one handler that only the new code has, and one that has an argument more in it."""

    async def comes(ctx: Context, seconds: float) -> Any:
        await asyncio.sleep(seconds / 20)

    async def grows(ctx: Context, seconds: float) -> Any:
        await asyncio.sleep(seconds / 20)

    async def grows_by(ctx: Context, seconds: float, by: float = 0.0) -> Any:
        await asyncio.sleep((seconds + by) / 20)

    if new:
        queue.task(reported(comes))
    queue.task(name="grows")(reported(grows_by if new else grows))
    return queue


SERVED: Final = tuple(_declare(Queue(name)) for name in QUEUES)
SERVED_OLD: Final = tuple(_declare_version(_declare(Queue(name)), new=False) for name in QUEUES)
SERVED_NEW: Final = tuple(_declare_version(_declare(Queue(name)), new=True) for name in QUEUES)


def served_by(process: SimulatedProcess) -> tuple[Queue, ...]:
    if not process.world.plan.old_nodes:
        return SERVED
    return SERVED_OLD if process.node.has_old_code else SERVED_NEW


class RowWorker(TaskWorker):
    queues = (TUBE,)

    async def handle_task(self, task: Task) -> object:
        result: object = await _handle_row(self.context(task))
        return result


@reported
async def _handle_row(ctx: Context) -> Any:
    await asyncio.sleep(0.5)
