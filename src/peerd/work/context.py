"""The Context, which a handler receives besides its arguments."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import cached_property
from typing import Any

import structlog

from peerd.domain.outcome import truncate
from peerd.domain.task import Task
from peerd.runtime.concurrency import BackgroundWork
from peerd.runtime.messenger import Messenger
from peerd.runtime.process.process_context import ProcessContext
from peerd.store.outcomes import TaskProgress
from peerd.work.attempt_log import AttemptLog
from peerd.work.output_capture import attempt_loggers

NOTE_LIMIT = 255
_ONLY_IN_A_PROCESS = (
    "ctx.process, and with it ctx.messenger, ctx.shared and ctx.run_in_background, work in a worker's own process "
    "only: not in a handler with process=True, and in a test in an InlineNode"
)
_ONLY_IN_A_WORKER = (
    "ctx.{0} works in a worker's own process only: not in a handler with process=True, "
    "and in a test in an InlineNode, or when {0}= was passed to run_inline"
)


class ProgressAwaitable:
    """The result of `Context.progress`. Awaiting it lets other tasks run; a thread need not await it."""

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.sleep(0).__await__()


class Context:
    """The running task, and the services that its handler can use.

    Args:
        task: the row, as it was claimed.
        node: the name of the node that runs it.
        options: ``[workers.NAME.options]`` of peerd.toml.
        report: takes progress.
        enqueue: enqueues other tasks; None outside a worker.
        client: for ``ctx.client``; None outside a worker.
        process: for ``ctx.process`` and the shortcuts to its parts; None outside a worker.
    """

    # Faster to create; hooks may still set any attribute.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_cancelled",
        "_client",
        "_enqueue",
        "_process",
        "attempt_log",
        "node",
        "options",
        "report",
        "saw_cancelled",
        "task",
    )

    def __init__(
        self,
        task: Task,
        *,
        node: str,
        options: Mapping[str, Any] | None = None,
        report: Callable[[TaskProgress], None],
        enqueue: Callable[..., Awaitable[Any]] | None = None,
        client: Any = None,
        process: ProcessContext | None = None,
    ) -> None:
        self.task = task
        self.node = node
        self.options: Mapping[str, Any] = options or {}
        self.report = report
        self.saw_cancelled = False
        """Whether the handler has read a true `cancelled`, so that its return may mean that it gave up."""
        self.attempt_log: AttemptLog | None = None
        """Takes the lines that are kept with the attempt; None where none are."""
        self._cancelled = False
        self._enqueue = enqueue
        self._client = client
        self._process = process

    @cached_property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A structlog logger bound to the task and the attempt. Its lines are kept with the attempt."""
        task = self.task
        bound = {"task": task.id, "queue": task.queue, "handler": task.name, "attempt": task.attempts + 1}
        log: structlog.stdlib.BoundLogger = (
            structlog.get_logger("peerd.task").bind(**bound)
            if self.attempt_log is None
            else attempt_loggers.make(self.attempt_log, **bound)
        )
        return log

    @property
    def cancelled(self) -> bool:
        """True once the task was canceled, moved, timed out, or its process must end. Read it in threads."""
        self.saw_cancelled = self.saw_cancelled or self._cancelled
        return self._cancelled

    def cancel(self) -> None:
        """Set `cancelled`. The worker calls it; a test may."""
        self._cancelled = True

    @property
    def lease(self) -> int:
        """The fencing token: it grows with each claim of the task. Give it to outside systems that can compare."""
        return self.task.lease

    def progress(self, fraction: float, note: str | None = None) -> ProgressAwaitable:
        """Report progress. Cheap: it is written about once a second, together with the touch.

        Args:
            fraction: from 0 to 1; values outside are clamped.
            note: text for people.

        Example::

            await ctx.progress(0.5, "half of it")     # in a coroutine
            ctx.progress(0.5, "half of it")           # in a thread or process
        """
        within = 0.0 if math.isnan(fraction) else min(max(float(fraction), 0.0), 1.0)
        self.report(TaskProgress(within, None if note is None else truncate(str(note), NOTE_LIMIT)))
        return ProgressAwaitable()

    @property
    def client(self) -> Any:
        """A `Client` on the worker's database; in a coroutine use ``ctx.client.aio``.

        Raises:
            RuntimeError: the handler does not run in a worker, or in a process of its own.
        """
        if self._client is None:
            raise RuntimeError(_ONLY_IN_A_WORKER.format("client"))
        return self._client

    @property
    def process(self) -> ProcessContext:
        """The process that the handler runs in.

        Raises:
            RuntimeError: the handler does not run in a worker, or in a process of its own.
        """
        if self._process is None:
            raise RuntimeError(_ONLY_IN_A_PROCESS)
        return self._process

    def traced_slot(self) -> tuple[str, str | None]:
        """The slot of the process, and the trace context of the attempt's span; `("", None)` where it has none."""
        if self._process is None or self._process.tracer is None:
            return "", None
        from peerd.runtime.spans import current_trace_context  # noqa: PLC0415 - it is loaded

        return self._process.slot, current_trace_context()

    @property
    def messenger(self) -> Messenger:
        """The messenger of the process, for messages to the node's other processes."""
        return self.process.messenger

    @property
    def shared(self) -> Callable[..., Any]:
        """Returns a client of an instance that the node's processes share; see `ProcessContext.shared`."""
        return self.process.shared

    def run_in_background(self, work: BackgroundWork) -> None:
        """Run a coroutine beyond the end of the handler; see `ProcessContext.run_in_background`."""
        self.process.run_in_background(work)

    async def enqueue(self, call: Any, **options: Any) -> Any:
        """Enqueue another task; the options are those of `Client.enqueue`.

        Raises:
            RuntimeError: the handler does not run in a worker.
        """
        if self._enqueue is None:
            raise RuntimeError(_ONLY_IN_A_WORKER.format("enqueue"))
        return await self._enqueue(call, **options)
