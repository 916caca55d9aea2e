"""TaskWorker, which runs whole rows, QueueWorker, which runs declared handlers, and their interface to an attempt."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import cached_property
from typing import Any, cast

import msgspec

from peerd.config.settings import WorkSettings
from peerd.domain.errors import InvalidArguments
from peerd.domain.known_handlers import KnownHandlers, UnsupportedTask, argument_names
from peerd.domain.outcome import Outcome
from peerd.domain.task import Task
from peerd.runtime.concurrency import run_in_thread_to_completion
from peerd.store.take.claimer import HandlerKey
from peerd.work.context import Context
from peerd.work.handler_process import HandlerProcessError, call_in_process
from peerd.work.handlers import Handler, Queue
from peerd.work.worker import BaseWorker


class TaskWorker(BaseWorker):
    """A worker that receives whole rows, with any body. Subclass it, name its ``queues``, and write `handle_task`.

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
        """Run one task; ``async def``, or a plain method, which runs in a thread."""
        raise NotImplementedError(f"{type(self).__name__} needs a method handle_task(task)")

    def delay(self, task: Task) -> float:
        """Seconds until the next attempt of a task that failed; ``task.attempts`` counts the attempt that just did."""
        return task.attempts * self.settings.delay_ratio

    async def before_attempt(self, ctx: Context) -> None:
        """Called before each attempt; an exception fails it."""

    async def after_attempt(self, ctx: Context, outcome: Outcome) -> None:
        """Called after each attempt."""

    def context(self, task: Task) -> Context:
        """The Context of a running task.

        Raises:
            KeyError: this worker does not run it.
        """
        return self.contexts[task.id]

    async def set_progress(self, task: Task, fraction: float, note: str | None = None) -> None:
        """Report the progress of a task; see `Context.progress`."""
        await self.context(task).progress(fraction, note)

    def adapter_for(self, task: Task) -> HandlerAdapter:
        """The user code that serves a task."""
        return self._raw_task_adapter

    @cached_property
    def _raw_task_adapter(self) -> HandlerAdapter:
        return HandlerAdapter(self)

    def attempts_by_handler(self) -> dict[HandlerKey, int]:
        """max_attempts of handlers that have their own."""
        return {}

    def known_handlers(self) -> KnownHandlers:
        """The tasks that it can run: every one of its queues."""
        return dict.fromkeys(self.settings.queues)


class HandlerAdapter:
    """User code for one task: `TaskWorker.handle_task`, or what a subclass of this makes of a declared handler.

    Attributes:
        timeout: seconds that it may run, where it has a limit of its own.
        is_cancellable: whether it ends when it is cancelled; a thread does not.
        has_hooks: whether `before` or `after` does anything.
    """

    timeout: float | None = None
    is_cancellable: bool = True
    has_hooks: bool = False

    def __init__(self, worker: TaskWorker) -> None:
        self._worker = worker
        self.is_cancellable = inspect.iscoroutinefunction(worker.handle_task)
        hooks = ("before_attempt", "after_attempt")
        self.has_hooks = any(
            getattr(getattr(worker, hook), "__func__", None) is not getattr(TaskWorker, hook) for hook in hooks
        )

    def prepare(self, ctx: Context) -> None:
        """Check the task before anything else is called; raises what makes it unfit."""

    async def run(self, ctx: Context) -> object:
        """Run the handler; the value that it returns."""
        worker = self._worker
        worker.contexts[ctx.task.id] = ctx
        try:
            if self.is_cancellable:
                return await cast("Awaitable[object]", worker.handle_task(ctx.task))
            return await run_in_thread_to_completion(worker.handle_task, ctx.task, name=f"task-{ctx.task.id}")
        finally:
            worker.contexts.pop(ctx.task.id, None)

    def retries(self, error: Exception) -> bool:
        """Whether another attempt may follow this exception."""
        return True

    def delay(self, ctx: Context) -> float:
        """Seconds until the next attempt, this one having failed."""
        return self._worker.delay(with_counted_attempt(ctx.task))

    async def before(self, ctx: Context) -> None:
        """Call the hooks before an attempt."""
        await self._worker.before_attempt(ctx)

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        """Call the hooks after an attempt."""
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
        queue = self._queues[task.queue]
        handler = queue.handlers.get(task.name)
        return MissingHandlerAdapter(queue, task) if handler is None else DeclaredHandlerAdapter(self, queue, handler)

    def attempts_by_handler(self) -> dict[HandlerKey, int]:
        return {
            (queue.name, handler.name): handler.policy.max_attempts
            for queue in self._queues.values()
            for handler in queue.handlers.values()
            if handler.policy.max_attempts is not None
        }

    def known_handlers(self) -> KnownHandlers:
        """The tasks that it can run: those of its handlers, with their signatures."""
        return {
            name: {handler.name: handler.arguments.signature for handler in self._queues[name].handlers.values()}
            for name in self.settings.queues
        }


class DeclaredHandlerAdapter(HandlerAdapter):
    """Adapts a declared handler, for one task."""

    __slots__ = ("_handler", "_queue", "_values", "_worker", "has_hooks", "is_cancellable", "timeout")

    def __init__(self, worker: QueueWorker, queue: Queue, handler: Handler[Any, Any]) -> None:
        self._worker = worker
        self._queue = queue
        self._handler = handler
        self.is_cancellable = handler.kind != "thread"
        self.has_hooks = bool(queue.before or queue.after)
        self.timeout = handler.policy.timeout

    def prepare(self, ctx: Context) -> None:
        task, body, arguments = ctx.task, ctx.task.body, self._handler.arguments
        if body is None and task.body_bytes is not None:
            raise InvalidArguments(task.name, "its body is binary; a handler takes a JSON object. Use a TaskWorker")
        try:
            self._values = arguments.decode(body)
        except InvalidArguments as error:
            given = argument_names(body if body is not None else "{}")
            if given is None:
                raise  # not a JSON object: no version of the handler takes it
            raise UnsupportedTask(str(error), arguments.signature, given) from None

    async def before(self, ctx: Context) -> None:
        for hook in self._queue.before:
            await call_hook(hook, ctx)

    def run(self, ctx: Context) -> Coroutine[Any, Any, object]:
        handler, values = self._handler, self._values
        args = (ctx,) if handler.arguments.takes_context else ()
        match handler.kind:
            case "coroutine":
                called: Coroutine[Any, Any, object] = handler.function(*args, **values)
                return called
            case "thread":
                name = f"{handler.name}-{ctx.task.id}"
                return run_in_thread_to_completion(lambda: handler.function(*args, **values), name=name)
            case "process":
                return call_in_process(handler.__module__, handler.__name__, ctx)

    def retries(self, error: Exception) -> bool:
        if not isinstance(error, HandlerProcessError):
            return self._handler.retries(error)
        kinds, policy = set(error.raised.kinds), self._handler.policy
        if "peerd.domain.errors.InvalidArguments" in kinds or kinds & _class_names(policy.discard_on):
            return False
        return not policy.retry_on or bool(kinds & _class_names(policy.retry_on))

    def delay(self, ctx: Context) -> float:
        failed = with_counted_attempt(ctx.task)
        own = self._handler.retry_delay(failed.attempts)
        return own if own is not None else self._worker.delay(failed)

    async def after(self, ctx: Context, outcome: Outcome) -> None:
        for hook in self._queue.after:
            await call_hook(hook, ctx, outcome)


class MissingHandlerAdapter(HandlerAdapter):
    """Stands for a handler that this process does not have: `prepare` refuses the task."""

    def __init__(self, queue: Queue, task: Task) -> None:
        known = ", ".join(sorted(queue.handlers)) or "none"
        wanted = f"no handler named {task.name!r}" if task.name else "a task without a name"
        self._error = f"queue {queue.name} has {wanted}; its handlers are: {known}"

    def prepare(self, ctx: Context) -> None:
        raise UnsupportedTask(self._error)


async def call_hook(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a hook, coroutine function or plain."""
    result = hook(*args)
    if inspect.isawaitable(result):
        await result


def timeout_of(task: Task, handler_adapter: HandlerAdapter, settings: WorkSettings) -> float | None:
    """Seconds that an attempt may run: the row's own limit, the handler's, or the worker's."""
    if task.timeout is not None:
        return task.timeout
    return handler_adapter.timeout if handler_adapter.timeout is not None else settings.timeout


def with_counted_attempt(task: Task) -> Task:
    """A task's row with the running attempt counted."""
    return msgspec.structs.replace(task, attempts=task.attempts + 1)


def _class_names(kinds: tuple[type[Exception], ...]) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
