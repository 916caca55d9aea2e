"""The settings and the base class of all workers, and the periodic worker."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable
from contextlib import suppress
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from peerd.config.parsing import InvalidSection, parse_section
from peerd.config.settings import WorkerSettings, WorkSettings
from peerd.runtime.concurrency import SystemExitInThread, own_thread, run_in_thread
from peerd.runtime.observability.events import EventBus, PeriodicLoopEnded
from peerd.runtime.process.process_context import NotAvailableInProcess, ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback

NO_QUEUES: Final = ()
"""The attribute of a class that does not name them."""


def work_settings_of(worker: object, given: WorkerSettings | None = None) -> WorkSettings:
    """The attributes of a worker object, overridden by the settings that the configuration gives explicitly.

    Raises:
        ValueError: an attribute has a wrong value; the error names it.
    """
    keys = WorkSettings.known_keys()
    attributes = {key: getattr(worker, key, None) for key in keys}
    try:
        settings = parse_section(
            WorkSettings, {key: value for key, value in attributes.items() if value not in (None, NO_QUEUES)}
        )
    except InvalidSection as error:
        raise ValueError(f"{type(worker).__name__}: {error}") from error
    explicit = {key: getattr(given, key) for key in keys if given is not None and key in given.given}
    return replace(settings, **{key: value for key, value in explicit.items() if value is not None})


class WorkerState(StrEnum):
    """The state of a worker: between two loops or without a task, in a loop or with tasks, not started or stopped."""

    IDLE = "idle"
    WORK = "work"
    STOP = "stop"


class WorkerExited(RuntimeError):
    """A periodic worker's loop raised SystemExit with a status that is not 0: its process crashes, and is replaced."""

    def __init__(self, worker: str, code: object) -> None:
        super().__init__(f"the loop of {worker} raised SystemExit({code!r})")


class BaseWorker:
    """Settings, state and process of a worker, and the hooks `setup` and `teardown`."""

    settings: WorkSettings

    def __init__(self) -> None:
        self.settings = work_settings_of(self)
        self.state = WorkerState.STOP
        self.stopped = asyncio.Event()
        self.events = EventBus()
        self.current_process: ProcessContext | None = None

    @property
    def process(self) -> ProcessContext:
        """The process that the worker runs in, with its messenger, client and background work; there from `setup` on.

        Raises:
            NotAvailableInProcess: before.
        """
        if self.current_process is None:
            raise NotAvailableInProcess("self.process is there from setup() on, in a worker that a node runs")
        return self.current_process

    def set_process(self, process: ProcessContext) -> None:
        """Called by the service that runs the worker, before `setup`."""
        self.current_process = process

    async def setup(self) -> None:
        """Called once before the work begins; open what it needs here."""

    async def teardown(self) -> None:
        """Called once after the work has ended; close it here."""


class Worker(BaseWorker):
    """Periodic work without a queue: `loop` again and again, with a pause of ``sleep`` after each end.

    An exception in the loop is reported, and the next round follows. A plain method ``loop`` runs in a thread. After
    ``await self.stop()`` or ``sys.exit()`` in the loop the process ends, and is not started again.

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
        """Do a round of the work; ``async def``, or a plain method, which runs in a thread."""
        raise NotImplementedError(f"{type(self).__name__} needs a method loop()")

    async def start(self) -> None:
        """Call `setup`, then run the rounds in the background.

        Raises:
            RuntimeError: it has been started before.
        """
        if self._loop_task is not None:
            raise RuntimeError(f"{type(self).__name__} was started already")
        await self.setup()
        self.state = WorkerState.IDLE
        self._loop_task = asyncio.create_task(self._run_loop(), name=type(self).__name__)

    async def stop(self) -> None:
        """Stop at once when idle, otherwise after the running round. Returns then; in the loop itself, at once."""
        self._stopping.set()
        if self._loop_task is None:
            self.stopped.set()
        elif asyncio.current_task() is not self._loop_task:
            await self.stopped.wait()

    async def ended(self) -> None:
        """Wait until it has stopped.

        Raises:
            WorkerExited: its loop raised SystemExit with a status that is not 0.
            Exception: by `teardown`.
        """
        await self.stopped.wait()
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task])
            if not self._loop_task.cancelled():  # by `abandon`, which is no failure
                self._loop_task.result()

    async def abandon(self) -> None:
        """Stop now: cancel the running round, and wait for one in a thread, and for a `teardown` that has begun."""
        self._stopping.set()
        if self._loop_task is not None:
            if self.state is not WorkerState.STOP:
                self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)

    async def _run_loop(self) -> None:
        try:
            while not self._stopping.is_set():
                await self._round()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.sleep):
                        await self._stopping.wait()
        finally:
            self.state = WorkerState.STOP
            try:
                await self.teardown()
            finally:
                self.stopped.set()

    async def _round(self) -> None:
        self.state = WorkerState.WORK
        began = time.monotonic()
        error = trace = raised = None
        try:
            if inspect.iscoroutinefunction(self.loop):
                with own_thread():
                    await self.loop()
            else:
                await run_in_thread(self.loop, name=type(self).__name__)
        except (SystemExit, SystemExitInThread) as leaving:
            self._on_exit_request(leaving)
        except Exception as failure:  # noqa: BLE001 - the next round follows any error of the user's code
            error, trace, raised = describe_exception(failure), format_traceback(failure), failure
        self.state = WorkerState.IDLE
        seconds = time.monotonic() - began
        ended = PeriodicLoopEnded(worker=type(self).__name__, seconds=seconds, error=error, traceback=trace)
        self.events.emit(ended, raised)

    def _on_exit_request(self, leaving: SystemExit | SystemExitInThread) -> None:
        self._stopping.set()
        code = getattr(leaving.raised if isinstance(leaving, SystemExitInThread) else leaving, "code", 1)
        if code not in (None, 0):
            raise WorkerExited(type(self).__name__, code) from leaving
