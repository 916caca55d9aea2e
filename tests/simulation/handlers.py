"""The handlers that the simulated workers run. Each reports its begin and its end to the world."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from peerd import Context, Queue, Retry, Snooze, TaskWorker
from peerd.domain.task import Task
from tests.simulation.plan import QUEUES, TUBE

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess


def process_of(ctx: Context) -> SimulatedProcess:
    """The simulated process in which a handler runs, from its worker's options."""
    process: SimulatedProcess = ctx.options["process"]
    return process


@asynccontextmanager
async def running(ctx: Context) -> AsyncIterator[dict[str, Any]]:
    """Report the begin and the end of a handler, also when it raises."""
    process, claim = process_of(ctx), (ctx.task.id, ctx.task.lease)
    process.world.handler_began(process, claim, ctx)
    how: dict[str, Any] = {"end": "raised"}
    try:
        yield how
    finally:
        process.world.handler_ended(process, claim, str(how["end"]))


def _declare(queue: Queue) -> Queue:  # noqa: C901 - eight small handlers

    @queue.task
    async def quick(ctx: Context, seconds: float) -> int:
        async with running(ctx) as how:
            await asyncio.sleep(seconds / 50)
            how["end"] = "done"
            return ctx.task.lease

    @queue.task
    async def long(ctx: Context, seconds: float) -> int:
        async with running(ctx) as how:
            for part in range(4):
                await asyncio.sleep(seconds / 4)
                await ctx.progress(part / 4, "so far")
            how["end"] = "done"
            return ctx.task.lease

    @queue.task
    async def flaky(ctx: Context, seconds: float) -> Any:
        async with running(ctx) as how:
            await asyncio.sleep(seconds / 20)
            if ctx.task.attempts == 0:
                raise ValueError("the first attempt fails")
            if ctx.task.attempts == 1:
                return Retry(seconds / 10, "the second one requests another")
            how["end"] = "done"
            return ctx.task.lease

    @queue.task
    async def snoozy(ctx: Context, seconds: float) -> Any:
        async with running(ctx) as how:
            await asyncio.sleep(0.1)
            if process_of(ctx).world.first_time(("snooze", ctx.task.id)):
                return Snooze(seconds / 5, "later")
            how["end"] = "done"
            return ctx.task.lease

    @queue.task
    async def stubborn(ctx: Context, seconds: float) -> int:
        async with running(ctx) as how:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(seconds / 2)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(seconds / 4)
            how["end"] = "done"
            return ctx.task.lease

    @queue.task
    async def blocking(ctx: Context, seconds: float) -> int:
        async with running(ctx) as how:
            process_of(ctx).block_loop(seconds)
            await asyncio.sleep(0.0)
            how["end"] = "done"
            return ctx.task.lease

    @queue.task
    async def poison(ctx: Context, seconds: float) -> None:
        async with running(ctx):
            await asyncio.sleep(seconds / 50)
            process_of(ctx).kill("signal SIGSEGV")
            await asyncio.get_running_loop().create_future()

    @queue.task
    async def parent(ctx: Context, seconds: float) -> int:
        async with running(ctx) as how:
            child = await ctx.enqueue(quick.with_args(seconds))
            process_of(ctx).world.accepted(child.id)
            how["end"] = "done"
            return ctx.task.lease

    return queue


SERVED = tuple(_declare(Queue(name)) for name in QUEUES)
"""The queues that a worker of the simulation serves."""


class RowWorker(TaskWorker):
    """Handles the jobs of queue clients as whole rows."""

    queues = (TUBE,)

    async def handle_task(self, task: Task) -> object:
        ctx = self.context(task)
        async with running(ctx) as how:
            await asyncio.sleep(0.5)
            how["end"] = "done"
            return task.lease
