"""TaskWorker: takes tasks of its queues from the table, several at once; and the one that serves declared handlers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable
from functools import cached_property
from typing import Any, cast

import msgspec

from peerd.domain.errors import InvalidArguments
from peerd.domain.known_handlers import KnownHandlers, UnsupportedTask
from peerd.domain.outcome import Outcome
from peerd.domain.task import Task
from peerd.runtime.concurrency.threads import run_in_thread_to_completion
from peerd.store.claim.claimer import HandlerKey
from peerd.work.arguments import argument_names
from peerd.work.attempts.handler_adapter import HandlerAdapter, JsonText, call_hook
from peerd.work.attempts.handler_process import HandlerProcessError, call_in_process
from peerd.work.context import Context
from peerd.work.handlers import Handler, Queue
from peerd.work.worker import BaseWorker


class TaskWorker(BaseWorker):
    """A worker that gets whole rows, of any body. Subclass it, name its ``queues``, and write `handle_task`.

    What `handle_task` returns is the result, and the task is done; an exception is a failure, retried after `delay`
    while attempts are left. It may return or raise Retry, Snooze, Cancel and Dead. A plain method runs in a thread.

    Example::

        class Legacy(TaskWorker):
            queues = ("legacy", "legacy-low")
            count = 4

            async def handle_task(self, task: Task) -> object:
                return {"seen": task.json}
    """

    queues: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.contexts: dict[int, Context] = {}

    def handle_task(self, task: Task) -> object:
        """Do the work of one task; ``async def``, or a plain method, which runs in a thread."""
        raise NotImplementedError(f"{type(self).__name__} needs a method handle_task(task)")

    def delay(self, task: Task) -> float:
        """Seconds until the next attempt of a task that failed; ``task.attempts`` counts the attempt that just did."""
        return task.attempts * self.settings.delay_ratio

    async def before_attempt(self, ctx: Context) -> None:
        """Called before each attempt; an exception fails it."""

    async def after_attempt(self, ctx: Context, outcome: Outcome) -> None:
        """Called after each attempt."""

    def context(self, task: Task) -> Context:
        """The Context of a task that this worker runs now.

        Raises:
            KeyError: it does not.
        """
        return self.contexts[task.id]

    async def set_progress(self, task: Task, fraction: float, note: str | None = None) -> None:
        """Say how far a task is; see `Context.progress`."""
        await self.context(task).progress(fraction, note)

    def adapter_for(self, task: Task) -> HandlerAdapter:
        """The user code that serves a task."""
        return self._raw_task_adapter

    @cached_property
    def _raw_task_adapter(self) -> RawTaskAdapter:
        return RawTaskAdapter(self)

    def attempts_by_handler(self) -> dict[HandlerKey, int]:
        """max_attempts of handlers that have their own."""
        return {}

    def knowledge(self) -> KnownHandlers:
        """What it can run: every task of its queues."""
        return dict.fromkeys(self.settings.queues)


class RawTaskAdapter:
    """`TaskWorker.handle_task` as code, of any task."""

    timeout = None

    def __init__(self, worker: TaskWorker) -> None:
        self._worker = worker
        self.is_cancellable = inspect.iscoroutinefunction(worker.handle_task)
        self.has_hooks = not (_is_default_hook(worker, "before_attempt") and _is_default_hook(worker, "after_attempt"))

    def prepare(self, ctx: Context) -> None:
        """Any row is fit."""

    async def run(self, ctx: Context) -> object:
        worker = self._worker
        worker.contexts[ctx.task.id] = ctx
        try:
            if self.is_cancellable:
                return await cast("Awaitable[object]", worker.handle_task(ctx.task))
            return await run_in_thread_to_completion(worker.handle_task, ctx.task, name=f"task-{ctx.task.id}")
        finally:
            worker.contexts.pop(ctx.task.id, None)

    def retries(self, error: Exception) -> bool:
        return True

    def delay(self, ctx: Context) -> float:
        return self._worker.delay(with_counted_attempt(ctx.task))

    async def before(self, ctx: Context) -> None:
        await self._worker.before_attempt(ctx)

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        await self._worker.after_attempt(ctx, outcome)


class QueueWorker(TaskWorker):
    """The TaskWorker that serves the handlers of declared queues.

    Args:
        queues: their handlers are found by queue and name.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self.queues = tuple(self._queues)
        super().__init__()

    def adapter_for(self, task: Task) -> HandlerAdapter:
        queue = self._queues[task.queue]  # which it claims from, and no other
        handler = queue.handlers.get(task.name)
        return (
            DeclaredHandlerAdapter(self, queue, handler) if handler is not None else MissingHandlerAdapter(queue, task)
        )

    def attempts_by_handler(self) -> dict[HandlerKey, int]:
        return {
            (queue.name, handler.name): handler.policy.max_attempts
            for queue in self._queues.values()
            for handler in queue.handlers.values()
            if handler.policy.max_attempts is not None
        }

    def knowledge(self) -> KnownHandlers:
        """What it can run: its handlers, with their signatures."""
        return {
            name: {handler.name: handler.arguments.signature for handler in self._queues[name].handlers.values()}
            for name in self.settings.queues
        }


class DeclaredHandlerAdapter:
    """A declared handler as code, of one task."""

    __slots__ = ("_handler", "_queue", "_values", "_worker", "has_hooks", "is_cancellable", "timeout")

    def __init__(self, worker: QueueWorker, queue: Queue, handler: Handler[Any, Any]) -> None:
        self._worker = worker
        self._queue = queue
        self._handler = handler
        self.is_cancellable = handler.kind != "thread"
        self.has_hooks = bool(queue.before or queue.after)
        self.timeout = handler.policy.timeout

    def prepare(self, ctx: Context) -> None:
        body, arguments = _body_of(ctx.task), self._handler.arguments
        try:
            self._values = arguments.decode(body)
        except InvalidArguments as error:
            given = argument_names(body if body is not None else "{}")
            if given is None:
                raise  # no version of a handler takes it
            raise UnsupportedTask(str(error), arguments.signature, given) from None

    async def before(self, ctx: Context) -> None:
        for hook in self._queue.before:
            await call_hook(hook, ctx)

    def run(self, ctx: Context) -> Awaitable[object]:
        handler, values = self._handler, self._values
        match handler.kind:
            case "coroutine":
                called: Awaitable[object] = (
                    handler.function(ctx, **values) if handler.arguments.takes_context else handler.function(**values)
                )
                return called
            case "thread":
                args = (ctx,) if handler.arguments.takes_context else ()
                name = f"{handler.name}-{ctx.task.id}"
                return run_in_thread_to_completion(lambda: handler.function(*args, **values), name=name)
            case "process":
                return self._run_in_process(ctx)

    def retries(self, error: Exception) -> bool:
        if isinstance(error, HandlerProcessError):
            return self._retries_by_name(error)
        return self._handler.retries(error)

    def delay(self, ctx: Context) -> float:
        failed = with_counted_attempt(ctx.task)
        own = self._handler.retry_delay(failed.attempts)
        return own if own is not None else self._worker.delay(failed)

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        for hook in self._queue.after:
            await call_hook(hook, ctx, outcome)

    async def _run_in_process(self, ctx: Context) -> JsonText:
        return JsonText(await call_in_process(self._handler.__module__, self._handler.__name__, ctx))

    def _retries_by_name(self, error: HandlerProcessError) -> bool:
        kinds = set(error.raised.kinds)
        if "peerd.domain.errors.InvalidArguments" in kinds or kinds & _class_names(self._handler.policy.discard_on):
            return False
        return not self._handler.policy.retry_on or bool(kinds & _class_names(self._handler.policy.retry_on))


class MissingHandlerAdapter:
    """What stands for the handler of a task that has none here: it cannot be prepared."""

    is_cancellable = True
    has_hooks = False
    timeout = None

    def __init__(self, queue: Queue, task: Task) -> None:
        known = ", ".join(sorted(queue.handlers)) or "none"
        wanted = f"no handler named {task.name!r}" if task.name else "a task without a name"
        self._error = f"queue {queue.name} has {wanted}; its handlers are: {known}"

    def prepare(self, ctx: Context) -> None:
        raise UnsupportedTask(self._error)

    async def run(self, ctx: Context) -> object:
        raise UnsupportedTask(self._error)

    def retries(self, error: Exception) -> bool:
        return False

    def delay(self, ctx: Context) -> float:
        return 0.0

    async def before(self, ctx: Context) -> None:
        """No hooks: no handler."""

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        """No hooks: no handler."""


def with_counted_attempt(task: Task) -> Task:
    """A task's row with the attempt counted that runs now."""
    return msgspec.structs.replace(task, attempts=task.attempts + 1)


def _body_of(task: Task) -> str | None:
    if task.body is None and task.body_bytes is not None:
        raise InvalidArguments(task.name, "its body is binary; a handler takes a JSON object. Use a TaskWorker")
    return task.body


def _is_default_hook(worker: TaskWorker, hook: str) -> bool:
    """Whether a worker has a hook as `TaskWorker` has it, which does nothing."""
    return getattr(getattr(worker, hook), "__func__", None) is getattr(TaskWorker, hook)


def _class_names(kinds: tuple[type[Exception], ...]) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
