"""What a handler is given besides its arguments."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

import structlog

from peerd.domain.outcome import cut
from peerd.domain.task import Task
from peerd.store.touch import Progress

NOTE_LIMIT = 255


class Noted:
    """What `Context.progress` returns: awaiting it lets other tasks run; not awaiting it is right in a thread."""

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.sleep(0).__await__()


class Context:
    """The task that runs, and what its handler may do about it.

    Args:
        task: the row, as it was claimed.
        node: the name of the node that runs it.
        options: ``[workers.NAME.options]`` of peerd.toml.
        report: takes progress.
        enqueue: enqueues other tasks; None outside a worker.
    """

    def __init__(
        self,
        task: Task,
        *,
        node: str,
        options: Mapping[str, Any] | None = None,
        report: Callable[[Progress], None],
        enqueue: Callable[..., Awaitable[Any]] | None = None,
    ) -> None:
        self.task = task
        self.node = node
        self.options: Mapping[str, Any] = options or {}
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger("peerd.task").bind(
            task=task.id, queue=task.queue, handler=task.name, attempt=task.attempts + 1
        )
        self.cancelled = False
        """True once it was canceled, moved, timed out, or its process must end."""
        self.report = report
        self._enqueue = enqueue

    @property
    def lease(self) -> int:
        """The fencing token: it grows with each claim of the task. Give it to outside systems that can compare."""
        return self.task.lease

    def progress(self, fraction: float, note: str | None = None) -> Noted:
        """Say how far the task is. Cheap: it is written about once a second, together with the touch.

        Args:
            fraction: from 0 to 1; what is outside is cut to it.
            note: words for people.

        Example::

            await ctx.progress(0.5, "half of it")     # in a coroutine
            ctx.progress(0.5, "half of it")           # in a thread or process
        """
        within = 0.0 if math.isnan(fraction) else min(max(float(fraction), 0.0), 1.0)
        self.report(Progress(within, None if note is None else cut(str(note), NOTE_LIMIT)))
        return Noted()

    async def enqueue(self, call: Any, **options: Any) -> Any:
        """Enqueue another task; the options are those of `Client.enqueue`.

        Raises:
            RuntimeError: the handler does not run in a worker.
        """
        if self._enqueue is None:
            raise RuntimeError("ctx.enqueue works in a worker only; in a test, pass enqueue= to run_inline")
        return await self._enqueue(call, **options)
