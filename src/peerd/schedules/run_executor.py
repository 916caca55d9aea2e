"""In a worker process: runs the functions that the agent requests, and reports their outcomes.

A function cannot harm the process by an exception, a failing import or an attempt to exit. A report is repeated until
the agent, or its replacement, has written it.

A function has two time limits, like a handler. At its time-out a coroutine is cancelled, and a plain function sees
``ctx.cancelled``. If it has not returned ``timeout_grace`` later, the process is replaced, and the agent ends the run
when the process has died; until then it is ``running``.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final, cast

import msgspec
import structlog

from peerd.domain.errors import NoReply, PeerdError, ProcessStopping, RequestFailed, Undeliverable
from peerd.domain.outcome import truncate
from peerd.domain.pacing import Backoff
from peerd.domain.schedule import RunStatus
from peerd.domain.units import format_duration
from peerd.runtime.concurrency import (
    SystemExitInThread,
    own_thread,
    run_in_thread,
    start_thread,
    wait_despite_cancellation,
)
from peerd.runtime.inbox import Message
from peerd.runtime.messenger import Messenger
from peerd.runtime.observability.events import EventBus, ScheduleRunEnded
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception

RUN_ACTION: Final = "peerd.schedules.run"
"""The action of a `RunRequest`; the reply says whether it is accepted, before the run begins."""
REPORT_ACTION: Final = "peerd.schedules.ended"
"""The action of a `RunReport`; the reply comes when it is written."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run a function."""

    run_id: int
    schedule: str
    tick_at: datetime
    origin: str
    function: str
    args: list[Any] | dict[str, Any] = []
    timeout: float | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

    run_id: int
    status: RunStatus
    error: str | None = None
    traceback: str | None = None


# ---------------------------------------------------------------- context


class ScheduleContext:
    """The current run: the first argument of a scheduled function, if that argument's name is ``ctx``.

    Attributes:
        schedule: the schedule's name.
        tick_at: the moment that the run is for, in UTC; for a manual run, when it was requested.
        origin: ``clock``, ``start``, ``hand``, ``custom`` or ``again``.
        run_id: of its row in ``schedule_runs``.
        process: the worker process: ``messenger``, ``client``, ``shared``, ``options``, ``run_in_background``.
        log: a logger that adds the schedule and the run to each line.
        cancelled: becomes true when the timeout is over or the process must end. Plain functions, which cannot be
            interrupted, should check it.
    """

    def __init__(self, request: RunRequest, process: ProcessContext) -> None:
        self.schedule = request.schedule
        self.tick_at: datetime = request.tick_at
        self.origin = request.origin
        self.run_id = request.run_id
        self.process = process
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger("peerd.schedule").bind(
            schedule=request.schedule, run=request.run_id
        )
        self.cancelled = False

    @property
    def messenger(self) -> Messenger:
        """The process's messenger."""
        return self.process.messenger

    @property
    def client(self) -> Any:
        """A `Client` on the process's database; coroutines use ``ctx.client.aio``."""
        return self.process.client

    @property
    def shared(self) -> Any:
        """Access to the objects that the node's processes share in its agent."""
        return self.process.shared


# ---------------------------------------------------------------- executor


MAX_REMEMBERED_RUNS: Final = 10_000
"""Accepted runs that a process remembers: an agent that was replaced may request a run again."""
MAX_ERROR_LENGTH: Final = 8192
"""Characters of an error and of a traceback."""
TIMEOUT_GRACE: Final = 30.0
"""Seconds, as the default of [workers.NAME] timeout_grace; a web process has no such setting."""


class ScheduleRunExecutor:
    """Runs scheduled functions in the background of a worker process, with the grace of that at a stop.

    ``find`` returns the object of ``module:name``; it is called in a thread, because it imports. A function must return
    within ``timeout_grace`` seconds after its time-out, or its process is replaced.
    """

    def __init__(
        self,
        process: ProcessContext,
        find: Callable[[str], object],
        events: EventBus,
        *,
        timeout_grace: float = TIMEOUT_GRACE,
    ) -> None:
        self._process = process
        self._find = find
        self._events = events
        self._timeout_grace = timeout_grace
        self._accepted: OrderedDict[int, None] = OrderedDict()
        process.messenger.on(RUN_ACTION, self._accept)

    def _accept(self, message: Message) -> bool:
        """Accept a request; False when the process is stopping."""
        request = msgspec.convert(message.data, RunRequest)
        if request.run_id in self._accepted:
            return True
        try:
            self._process.run_in_background(self._execute(request))
        except ProcessStopping:
            return False
        self._accepted[request.run_id] = None
        if len(self._accepted) > MAX_REMEMBERED_RUNS:
            self._accepted.popitem(last=False)
        return True

    async def _execute(self, request: RunRequest) -> None:
        began = asyncio.get_running_loop().time()
        self._process.scheduled_runs += 1
        report = RunReport(run_id=request.run_id, status=RunStatus.CANCELED, error="its process had to end")
        raised: list[BaseException] = []
        try:
            report = await self._run(request, raised)
        except asyncio.CancelledError:  # there is no time to wait for a reply
            self._process.messenger.send_to_agent(REPORT_ACTION, msgspec.to_builtins(report))
            raise
        finally:
            self._process.scheduled_runs -= 1
            self._events.emit(
                ScheduleRunEnded(
                    schedule=request.schedule,
                    run_id=request.run_id,
                    status=report.status,
                    seconds=asyncio.get_running_loop().time() - began,
                    error=report.error,
                    traceback=report.traceback,
                ),
                raised[0] if raised else None,
            )
            raised.clear()  # its frames hold this one
        await self._send_report_until_written(report)

    async def _run(self, request: RunRequest, exceptions: list[BaseException]) -> RunReport:
        """Run the function; an exception is its outcome, except the cancellation of the process's work.

        What the function has raised is added to `exceptions`.
        """
        timeout = asyncio.timeout(request.timeout)
        try:
            function = await run_in_thread(self._find, request.function, name=f"import-{request.run_id}")
            async with timeout:
                with self._hard_limit(request):
                    await self._call(function, request)
        except BaseException as error:
            if _is_cancellation(error):
                raise
            if isinstance(error, TimeoutError) and timeout.expired():
                message = f"it took longer than {request.timeout:g} s"
                return RunReport(run_id=request.run_id, status=RunStatus.TIMEOUT, error=message)
            raised = error.raised if isinstance(error, SystemExitInThread) else error
            exceptions.append(raised)
            return RunReport(
                run_id=request.run_id,
                status=RunStatus.FAILED,
                error=truncate(describe_exception(raised), MAX_ERROR_LENGTH),
                traceback=truncate("".join(traceback.format_exception(raised)), MAX_ERROR_LENGTH),
            )
        return RunReport(run_id=request.run_id, status=RunStatus.DONE)

    @contextmanager
    def _hard_limit(self, request: RunRequest) -> Iterator[None]:
        """Have the process replaced if the block has not ended within `timeout_grace` after the request's timeout."""
        if request.timeout is None:
            yield
            return
        reason = (
            f"schedule {request.schedule} (run {request.run_id}) did not return within "
            f"{format_duration(self._timeout_grace)} after its timeout of {format_duration(request.timeout)}"
        )
        ends_at = request.timeout + self._timeout_grace
        timer = asyncio.get_running_loop().call_later(ends_at, self._process.report_stuck_code, reason)
        try:
            yield
        finally:
            timer.cancel()

    async def _call(self, function: object, request: RunRequest) -> None:
        if not callable(function):
            raise NotAFunction(request.function, function)
        context = ScheduleContext(request, self._process)
        args = request.args if isinstance(request.args, list) else []
        named = request.args if isinstance(request.args, dict) else {}
        if _wants_context(function):
            args = [context, *args]
        if inspect.iscoroutinefunction(function):
            with own_thread():
                await cast("Awaitable[object]", function(*args, **named))
        else:
            await _in_thread(lambda: function(*args, **named), context)

    async def _send_report_until_written(self, report: RunReport) -> None:
        pauses = Backoff()
        while True:
            try:
                await self._process.messenger.request("agent", REPORT_ACTION, msgspec.to_builtins(report))
            except (NoReply, RequestFailed, Undeliverable):
                await asyncio.sleep(pauses.next())
            else:
                return


class NotAFunction(PeerdError, TypeError):
    """The object that [schedules.NAME] run names is not callable."""

    def __init__(self, entry: str, found: object) -> None:
        super().__init__(f"{entry} is a {type(found).__name__}, not a function")


async def _in_thread(function: Callable[[], object], context: ScheduleContext) -> None:
    """Run a plain function. It cannot be interrupted: ``ctx.cancelled`` is set, and its end is waited for."""
    ended = start_thread(function, name=f"schedule-{context.run_id}")
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        context.cancelled = True
        with suppress(Exception):
            await wait_despite_cancellation(ended)
        raise
    ended.result()


def _wants_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    return bool(parameters) and parameters[0] == "ctx"


def _is_cancellation(error: BaseException) -> bool:
    """Whether the run was cancelled from outside: a CancelledError of the function itself is a failure."""
    task = asyncio.current_task()
    return isinstance(error, GeneratorExit) or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )
