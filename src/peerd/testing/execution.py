"""One attempt as a worker begins it; what the inline ways of running a task have in common."""

from __future__ import annotations

import asyncio

from peerd.domain.outcome import Outcome
from peerd.runtime.observability.events import EventBus
from peerd.work.attempts.attempt_execution import AttemptCallbacks, Execution
from peerd.work.attempts.attempt_outcome import StopReason, TimeLimits
from peerd.work.context import Context
from peerd.work.task_worker import TaskWorker, timeout_of


def make_execution(
    worker: TaskWorker, ctx: Context, events: EventBus, *, until_finish: float | None = None
) -> Execution:
    """An attempt that is ready to run: the code that serves the task, and its limits of time."""
    handler_adapter = worker.adapter_for(ctx.task)
    timeout = timeout_of(ctx.task, handler_adapter, worker.settings)
    limits = TimeLimits(timeout, until_finish, hook_timeout=worker.settings.hook_timeout)
    return Execution(handler_adapter, ctx, limits, AttemptCallbacks(events))


async def run_in_own_task(execution: Execution) -> Outcome:
    """Run an attempt in an asyncio task of its own, as a worker does.

    Cancelled, it tells the attempt to end, and is cancelled when that has ended.
    """
    running = asyncio.ensure_future(execution.outcome())
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        execution.end(StopReason.STOPPING)
        await asyncio.wait([running])
        raise
