"""One attempt as a worker begins it, for `run_inline` and `InlineNode` alike."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from peerd.runtime.observability.events import EventBus
from peerd.work.attempt_execution import AttemptCallbacks, Execution
from peerd.work.attempt_outcome import StopReason, TimeLimits
from peerd.work.context import Context
from peerd.work.task_worker import TaskWorker, timeout_of

T = TypeVar("T")


def make_execution(
    worker: TaskWorker, ctx: Context, events: EventBus, *, until_finish: float | None = None
) -> Execution:
    """An attempt that is ready to run: the handler of the task, and its time limits."""
    handler_adapter = worker.adapter_for(ctx.task)
    timeout = timeout_of(ctx.task, handler_adapter, worker.settings)
    limits = TimeLimits(timeout, until_finish, hook_timeout=worker.settings.hook_timeout)
    return Execution(handler_adapter, ctx, limits, AttemptCallbacks(events))


async def run_in_own_task(execution: Execution, attempt: Coroutine[Any, Any, T]) -> T:
    """Run an attempt in an asyncio task of its own, as a worker does.

    If this is cancelled, the attempt is ended as in a process that stops, and awaited.
    """
    running = asyncio.ensure_future(attempt)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        execution.end(StopReason.STOPPING)
        await asyncio.wait([running])
        raise
