"""Attempts of declared handlers, without a worker around them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from peerd import Context, Queue
from peerd.domain.outcome import Outcome
from peerd.runtime.observability.events import EventBus
from peerd.testing import eventually_async, make_task
from peerd.work.attempt_execution import AttemptCallbacks, Execution
from peerd.work.attempt_outcome import StopReason, TimeLimits
from peerd.work.task_worker import QueueWorker


def execution(queue: Queue, name: str, body: str = "{}", **more: Any) -> Execution:
    task = make_task(queue=queue.name, name=name, body=body)
    ctx = Context(task, node="n", report=lambda _: None)
    options: dict[str, Any] = {"events": EventBus(), **more}
    limits = TimeLimits(**{key: options.pop(key) for key in TimeLimits._fields if key in options})
    return Execution(QueueWorker([queue]).adapter_for(task), ctx, limits, AttemptCallbacks(**options))


async def ended_after(running: Execution, stop_reason: StopReason, started: asyncio.Event | threading.Event) -> Outcome:
    outcome = asyncio.ensure_future(running.outcome())
    await eventually_async(started.is_set)
    running.end(stop_reason)
    return await outcome
