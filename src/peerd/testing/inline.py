"""Run one attempt in the caller's event loop: no database, and no processes except the handler's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from peerd.domain.lifecycle import Status, after
from peerd.domain.outcome import Done, Failed, Outcome, transition_after
from peerd.domain.task import Call, Task
from peerd.runtime.observability.events import Event, EventBus
from peerd.store.outcomes import TaskProgress
from peerd.testing.rows import MOMENT, make_task
from peerd.work.attempt_execution import AttemptCallbacks, Execution
from peerd.work.attempt_outcome import StopReason, TimeLimits
from peerd.work.context import Context
from peerd.work.handlers import Handler
from peerd.work.task_worker import QueueWorker, TaskWorker, timeout_of

T = TypeVar("T")


class Ran(msgspec.Struct, kw_only=True):
    """The outcome of an attempt, and what it reported.

    Attributes:
        status: of the task after the attempt.
        result: the returned value, as `Job.result` gives it: once through JSON.
        error: the error, or the reason that was given.
        traceback: of the error.
        retry_in: seconds until the next attempt of a task that will have one.
        progress: the reports, as fractions and notes.
        events: what the worker would have logged, such as the exception of a hook.
    """

    status: Status
    result: Any = None
    error: str | None = None
    traceback: str | None = None
    retry_in: float | None = None
    progress: list[tuple[float, str | None]] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)


async def run_inline(
    call: Call,
    *,
    node: str = "inline",
    options: Mapping[str, Any] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - the row's column
    enqueue: Callable[..., Awaitable[Any]] | None = None,
    client: Any = None,
    **row: Any,
) -> Ran:
    """Run a handler once: arguments, hooks, timeout and outcomes as in a worker.

    Args:
        call: ``handler.with_args(…)``.
        node: what ``ctx.node`` is.
        options: what ``ctx.options`` is.
        timeout: seconds; None is the handler's own.
        enqueue: what ``ctx.enqueue`` calls; without it, that raises.
        client: what ``ctx.client`` is; without it, that raises.
        row: columns of the task's row, such as ``attempts=2, max_attempts=3``.

    Raises:
        TypeError: the call was not made by a handler.

    >>> import asyncio
    >>> from peerd import Queue, Retry
    >>> words = Queue("words")
    >>> @words.task
    ... async def count(ctx, text: str) -> int:
    ...     await ctx.progress(0.5, "counting")
    ...     return len(text.split()) if text else Retry("10s", "nothing to count yet")
    >>> ran = asyncio.run(run_inline(count.with_args("three little words")))
    >>> ran.result, ran.progress
    (3, [(0.5, 'counting')])
    >>> ran = asyncio.run(run_inline(count.with_args("")))
    >>> ran.status, ran.retry_in, ran.error
    (<Status.FAILURE: 'failure'>, 10.0, 'nothing to count yet')
    """
    if not isinstance(call.handler, Handler):
        raise TypeError(f"{call!r} was not made by handler.with_args(…), so there is no code to run")
    worker = QueueWorker([call.handler.queue])
    given = {"limit_key": call.limit_key, **row}
    task = make_task(queue=call.queue, name=call.name, body=call.body, timeout=timeout, **given)
    return await _run(worker, task, node=node, options=options or {}, enqueue=enqueue, client=client)


async def run_row(
    worker: TaskWorker,
    body: str | None = None,
    *,
    node: str = "inline",
    options: Mapping[str, Any] | None = None,
    **row: Any,
) -> Ran:
    """Run a `TaskWorker` on one row, its hooks and its delay included; not `setup` and `teardown`, which you call.

    Args:
        worker: an object of your class.
        body: the row's text.
        node: what ``ctx.node`` is.
        options: what ``ctx.options`` is; None is those of the worker's settings.
        row: further columns.

    >>> import asyncio
    >>> from peerd import TaskWorker
    >>> class Legacy(TaskWorker):
    ...     queues = ("legacy",)
    ...     async def handle_task(self, task):
    ...         return {"seen": task.json}
    >>> asyncio.run(run_row(Legacy(), '{"id": 7}')).result
    {'seen': {'id': 7}}
    """
    task = make_task(**{"queue": next(iter(worker.settings.queues), "test"), "body": body, **row})
    given = worker.settings.options if options is None else options
    return await _run(worker, task, node=node, options=given, enqueue=None, client=None)


async def _run(
    worker: TaskWorker,
    task: Task,
    *,
    node: str,
    options: Mapping[str, Any],
    enqueue: Callable[..., Awaitable[Any]] | None,
    client: Any,
) -> Ran:
    reports: list[TaskProgress] = []
    events: list[Event] = []
    ctx = Context(task, node=node, options=options, report=reports.append, enqueue=enqueue, client=client)
    execution = make_execution(worker, ctx, EventBus(events.append))
    ran = _to_ran(task, await run_in_own_task(execution, execution.outcome()))
    ran.progress, ran.events = [(progress.fraction, progress.note) for progress in reports], events
    return ran


def _to_ran(task: Task, outcome: Outcome) -> Ran:
    if isinstance(outcome, Done):
        return Ran(status=Status.DONE, result=None if outcome.result is None else json.loads(outcome.result))
    verdict = transition_after(task, outcome, MOMENT)
    status = after(task.status, verdict.event)
    assert isinstance(status, Status)
    retry_in = (verdict.start_at - MOMENT).total_seconds() if verdict.start_at is not None else None
    traceback = outcome.traceback if isinstance(outcome, Failed) else None
    return Ran(status=status, error=verdict.error, traceback=traceback, retry_in=retry_in)


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
