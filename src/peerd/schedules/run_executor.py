"""In a worker process: runs the functions that the agent orders, and reports how each has ended.

Nothing that such a function does harms the process: not an exception, not a module that cannot be imported, not an
attempt to leave the interpreter. A report is repeated until the agent, or the one after it, has written it.

The time of a function has two limits, as that of a handler. At its time-out a coroutine is cancelled, and a plain
function is told by ``ctx.cancelled``. A function that has not returned some seconds later can only be ended with its
process: the process is replaced, and the agent writes the run's end when it is dead. Until then it counts as running.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from peerd.domain.backoff import Backoff
from peerd.domain.duration import format_duration
from peerd.domain.errors import NoReply, PeerdError, ProcessStopping, RequestFailed, Undeliverable
from peerd.domain.outcome import truncate
from peerd.domain.schedule import RunStatus
from peerd.runtime.concurrency.threads import SystemExitInThread, run_in_thread, start_thread, wait_despite_cancellation
from peerd.runtime.messages.inbox import Message
from peerd.runtime.observability.events import EventBus, ScheduleRunEnded
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.context import ScheduleContext
from peerd.schedules.run_requests import REPORT_ACTION, RUN_ACTION, RunReport, RunRequest, decode_run_request, to_json

MAX_REMEMBERED_RUNS: Final = 10_000
"""Runs that a process knows to have been ordered already: an agent that was replaced may order one again."""
TIMEOUT_GRACE: Final = 30.0
"""Seconds, as the default of [workers.NAME] timeout_grace; a web process has no such setting."""
MAX_ERROR_LENGTH: Final = 8192
"""Characters of an error, and of a traceback."""
REPORT_RETRY_PAUSES: Final = (0.1, 5.0)
"""Seconds before a report is repeated: the first time, and at the most."""


class ScheduleRunExecutor:
    """Runs scheduled functions in a worker process, from the moment that it is made.

    Args:
        process: the process; runs go on in its background, so they have their grace when it stops.
        find: gives what an entry ``module:name`` names; called in a thread, for it imports.
        events: what happens.
        timeout_grace: seconds in which a function returns after its time-out; else its process ends with it.
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
        """Take an order; False when the process stops and can take none."""
        request = decode_run_request(message.data)
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
        try:
            report = await self._run(request)
        except asyncio.CancelledError:
            self._process.messenger.send_to_agent(
                REPORT_ACTION, to_json(report)
            )  # there is no time to wait for an answer
            raise
        finally:
            self._process.scheduled_runs -= 1
            self._emit_ended(request, report, asyncio.get_running_loop().time() - began)
        await self._send_report_until_written(report)

    async def _run(self, request: RunRequest) -> RunReport:
        """Run it; whatever it raises is its outcome, except that the process ends."""
        time = asyncio.timeout(request.timeout)
        try:
            function = await run_in_thread(self._find, request.function, name=f"import-{request.run_id}")
            async with time:
                with self._hard_limit(request):
                    await self._call(function, request)
        except BaseException as error:
            if _is_cancellation(error):
                raise
            if isinstance(error, TimeoutError) and time.expired():
                message = f"it took longer than {request.timeout:g} s"
                return RunReport(run_id=request.run_id, status=RunStatus.TIMEOUT, error=message)
            return _failed_report(request, error)
        return RunReport(run_id=request.run_id, status=RunStatus.DONE)

    @contextmanager
    def _hard_limit(self, request: RunRequest) -> Iterator[None]:
        """Have the process ended if what is inside has not returned some time after the order's time-out."""
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
            await cast("Awaitable[object]", function(*args, **named))
        else:
            await _in_thread(lambda: function(*args, **named), context)

    async def _send_report_until_written(self, report: RunReport) -> None:
        """Tell the agent until it has written it."""
        pauses = Backoff(*REPORT_RETRY_PAUSES, jitter=0.0)
        while True:
            try:
                await self._process.messenger.request("agent", REPORT_ACTION, to_json(report))
            except (NoReply, RequestFailed, Undeliverable):
                await asyncio.sleep(pauses.next())
            else:
                return

    def _emit_ended(self, request: RunRequest, report: RunReport, seconds: float) -> None:
        self._events.emit(
            ScheduleRunEnded(
                schedule=request.schedule,
                run_id=request.run_id,
                status=report.status,
                seconds=seconds,
                error=report.error,
                traceback=report.traceback,
            )
        )


class NotAFunction(PeerdError, TypeError):
    """What [schedules.NAME] run names cannot be called."""

    def __init__(self, entry: str, found: object) -> None:
        super().__init__(f"{entry} is a {type(found).__name__}, not a function")


async def _in_thread(function: Callable[[], object], context: ScheduleContext) -> None:
    """Run a plain function. It cannot be interrupted: it is told, and its run goes on until it has ended."""
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
    except (TypeError, ValueError):  # some functions in C do not tell
        return False
    return bool(parameters) and parameters[0] == "ctx"


def _is_cancellation(error: BaseException) -> bool:
    """Whether the run is being cancelled: a CancelledError that nobody has asked for is a failure like others."""
    task = asyncio.current_task()
    return isinstance(error, GeneratorExit) or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )


def _failed_report(request: RunRequest, error: BaseException) -> RunReport:
    raised = error.raised if isinstance(error, SystemExitInThread) else error
    return RunReport(
        run_id=request.run_id,
        status=RunStatus.FAILED,
        error=truncate(describe_exception(raised), MAX_ERROR_LENGTH),
        traceback=truncate("".join(traceback.format_exception(raised)), MAX_ERROR_LENGTH),
    )
