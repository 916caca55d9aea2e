"""The life that all workers share, and the periodic worker."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable
from contextlib import suppress
from enum import StrEnum

from peerd.runtime.concurrency.threads import SystemExitInThread, run_in_thread
from peerd.runtime.observability.events import EventBus, PeriodicLoopEnded
from peerd.runtime.process.process_context import NotAvailableInProcess, ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback
from peerd.work.settings import EffectiveWorkerSettings


class WorkerState(StrEnum):
    """Where a worker stands."""

    IDLE = "idle"
    """Between two loops, or without a task."""
    WORK = "work"
    """In a loop, or with tasks running."""
    STOP = "stop"
    """Not started, or stopped."""


class WorkerExited(RuntimeError):
    """A periodic worker's loop raised SystemExit with a status that is not 0: its process crashes, and is replaced."""

    def __init__(self, worker: str, code: object) -> None:
        super().__init__(f"the loop of {worker} raised SystemExit({code!r})")


class BaseWorker:
    """What every worker has: settings, a state, the event of its stop, and two hooks around its life."""

    settings: EffectiveWorkerSettings

    def __init__(self) -> None:
        self.settings = EffectiveWorkerSettings.of(self)
        self.state = WorkerState.STOP
        self.stopped = asyncio.Event()
        self.events = EventBus()
        self.current_process: ProcessContext | None = None

    @property
    def process(self) -> ProcessContext:
        """The process that the worker lives in: its messenger, its client, its work in the background.

        Raises:
            NotAvailableInProcess: it does not live in one yet; from `setup` on it does.
        """
        if self.current_process is None:
            raise NotAvailableInProcess("self.process is there from setup() on, in a worker that a node runs")
        return self.current_process

    def set_process(self, process: ProcessContext) -> None:
        """Live in a process. The service that runs the worker calls it, before `setup`."""
        self.current_process = process

    async def setup(self) -> None:
        """Called once before the work begins; open what it needs here."""

    async def teardown(self) -> None:
        """Called once after the work has ended; close it here."""


class Worker(BaseWorker):
    """Periodic work without a queue: `loop` again and again, with a pause of ``sleep`` after each end.

    An exception in the loop is reported, and the loop goes on. A plain method ``loop`` runs in a thread. A worker that
    calls ``await self.stop()`` or ``sys.exit()`` in its loop leaves for good: its process is not started again.

    Example::

        class Cleanup(Worker):
            sleep = "1m"

            async def loop(self) -> None:
                ...
    """

    def __init__(self) -> None:
        super().__init__()
        self._stopping = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None

    def loop(self) -> Awaitable[None] | None:
        """One round of the work; ``async def``, or a plain method, which runs in a thread."""
        raise NotImplementedError(f"{type(self).__name__} needs a method loop()")

    async def start(self) -> None:
        """Begin: `setup`, then the rounds, in the background.

        Raises:
            RuntimeError: it has been started before.
        """
        if self._loop_task is not None:
            raise RuntimeError(f"{type(self).__name__} was started already")
        await self.setup()
        self.state = WorkerState.IDLE
        self._loop_task = asyncio.create_task(self._run_loop(), name=type(self).__name__)

    async def stop(self) -> None:
        """Stop: at once when idle, after the round that runs otherwise.

        Returns when it has stopped; in the loop itself, at once.
        """
        self._stopping.set()
        if self._loop_task is None:
            self.stopped.set()
        elif asyncio.current_task() is not self._loop_task:
            await self.stopped.wait()

    async def ended(self) -> None:
        """Wait until it has stopped.

        Raises:
            WorkerExited: its loop wanted the process to end with a status that is not 0.
            Exception: `teardown` raised it.
        """
        await self.stopped.wait()
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task])
            if not self._loop_task.cancelled():  # as `abandon` does: it has stopped, and that is no failure
                self._loop_task.result()

    async def abandon(self) -> None:
        """Stop now: cancel the round that runs. One in a thread cannot be cancelled: it is waited for.

        So is a `teardown` that has begun: what is half closed would be worse.
        """
        self._stopping.set()
        if self._loop_task is not None:
            if self.state is not WorkerState.STOP:
                self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)

    async def _run_loop(self) -> None:
        try:
            while not self._stopping.is_set():
                await self._round()
                await self._pause()
        finally:
            self.state = WorkerState.STOP
            try:
                await self.teardown()
            finally:
                self.stopped.set()

    async def _round(self) -> None:
        self.state = WorkerState.WORK
        began = time.monotonic()
        error = trace = None
        try:
            if inspect.iscoroutinefunction(self.loop):
                await self.loop()
            else:
                await run_in_thread(self.loop, name=type(self).__name__)
        except (SystemExit, SystemExitInThread) as leaving:
            self._on_exit_request(leaving)
        except Exception as failure:  # noqa: BLE001 - whatever the user's code raises, the next round comes
            error, trace = describe_exception(failure), format_traceback(failure)
        self.state = WorkerState.IDLE
        seconds = time.monotonic() - began
        self.events.emit(PeriodicLoopEnded(worker=type(self).__name__, seconds=seconds, error=error, traceback=trace))

    def _on_exit_request(self, leaving: SystemExit | SystemExitInThread) -> None:
        self._stopping.set()
        code = getattr(leaving.raised if isinstance(leaving, SystemExitInThread) else leaving, "code", 1)
        if code not in (None, 0):
            raise WorkerExited(type(self).__name__, code) from leaving

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.sleep):
                await self._stopping.wait()
