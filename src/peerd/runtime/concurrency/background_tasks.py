"""Work beside what a process is asked for: kept, awaited when the process stops, and never its downfall."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from peerd.domain.errors import ProcessStopping
from peerd.runtime.observability.events import BackgroundWorkCancelled, BackgroundWorkFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback

CANCEL_TIMEOUT: Final = 1.0
"""Seconds that cancelled work has to end before the process goes on with its stop."""

BackgroundWork = Coroutine[Any, Any, object]


class BackgroundTasks:
    """The tasks of one process that nobody awaits. Made on its event loop.

    Args:
        events: what goes wrong in them.
    """

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """How many tasks go on."""
        return len(self._tasks)

    def run(self, work: BackgroundWork, name: str | None = None) -> None:
        """Let a coroutine run; from any thread.

        Args:
            work: the coroutine.
            name: how it is called in the log; that of its function when None.

        Raises:
            ProcessStopping: the process stops and begins nothing more.
            TypeError: it is not a coroutine.
        """
        if not asyncio.iscoroutine(work):
            raise TypeError(f"give run_in_background a coroutine, as in run_in_background(refresh()), not {work!r}")
        work_name = name or str(getattr(work, "__qualname__", type(work).__name__))
        if self._closed:
            work.close()
            raise ProcessStopping(work_name)
        if _running_loop() is self._loop:
            self._start(work, work_name)
        else:
            self._loop.call_soon_threadsafe(self._start, work, work_name)

    async def finish(self, grace: float) -> None:
        """Begin nothing more; let what runs end within `grace` seconds, and cancel the rest.

        It may be called again with less.
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
        if self._closed:  # it came from a thread in the last moment
            work.close()
            self._events.emit(BackgroundWorkFailed(name=name, error=str(ProcessStopping(name))))
            return
        task = self._loop.create_task(self._guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: BackgroundWork, name: str) -> None:
        try:
            await work
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is no reason for the process to fall
            self._events.emit(
                BackgroundWorkFailed(name=name, error=describe_exception(error), traceback=format_traceback(error))
            )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
