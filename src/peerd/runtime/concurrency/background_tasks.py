"""Background tasks of a process: their exceptions are logged, and they are awaited when the process stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from peerd.domain.errors import ProcessStopping
from peerd.runtime.observability.events import BackgroundWorkCancelled, BackgroundWorkFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback

CANCEL_TIMEOUT: Final = 1.0
"""Seconds that cancelled work has to end before the stop of the process continues."""

BackgroundWork = Coroutine[Any, Any, object]


class BackgroundTasks:
    """The background tasks of one process. Made on its event loop."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """How many tasks run."""
        return len(self._tasks)

    def run(self, work: BackgroundWork, name: str | None = None) -> None:
        """See `ProcessContext.run_in_background`; `name` is that of the work in the log, else that of its function."""
        if not asyncio.iscoroutine(work):
            raise TypeError(f"give run_in_background a coroutine, as in run_in_background(refresh()), not {work!r}")
        work_name = name or str(getattr(work, "__qualname__", type(work).__name__))
        if self._closed:
            work.close()
            raise ProcessStopping(work_name)
        if running_loop() is self._loop:
            self._start(work, work_name)
        else:
            self._loop.call_soon_threadsafe(self._start, work, work_name)

    async def finish(self, grace: float) -> None:
        """Start no more work, let the running work end within `grace` seconds, and cancel the rest.

        It may be called again with a shorter grace.
        """
        self._closed = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=grace)
        if left := set(self._tasks):
            self._events.emit(BackgroundWorkCancelled(names=tuple(sorted(task.get_name() for task in left))))
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CANCEL_TIMEOUT)

    def _start(self, work: BackgroundWork, name: str) -> None:
        if self._closed:  # a thread called `run` just before
            work.close()
            self._events.emit(BackgroundWorkFailed(name=name, error=str(ProcessStopping(name))))
            return
        task = self._loop.create_task(self._guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: BackgroundWork, name: str) -> None:
        try:
            await work
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; it does not end the process
            failed = BackgroundWorkFailed(name=name, error=describe_exception(error), traceback=format_traceback(error))
            self._events.emit(failed, error)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
