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

from peerd.domain.duration import format_duration
from peerd.domain.errors import NoReply, PeerdError, ProcessStopping, RequestFailed, Undeliverable
from peerd.domain.outcome import cut
from peerd.domain.schedule import RunStatus
from peerd.runtime.concurrency.threads import ExitInThread, ended_anyway, in_thread, start_thread
from peerd.runtime.messages.message_handlers import Message
from peerd.runtime.observability.events import Events, ScheduleRunEnded
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import words
from peerd.schedules.context import ScheduleContext
from peerd.schedules.run_requests import ENDED, RUN, Order, Report, order_of, to_json

REMEMBERED: Final = 10_000
"""Runs that a process knows to have been ordered already: an agent that was replaced may order one again."""
TIMEOUT_GRACE: Final = 30.0
"""Seconds, as the default of [workers.NAME] timeout_grace; a web process has no such setting."""
LONGEST_WORDS: Final = 8192
"""Characters of an error, and of a traceback."""
REPORT_AGAIN: Final = (0.1, 5.0)
"""Seconds before a report is repeated: the first time, and at the most."""


class ScheduleRunner:
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
        events: Events,
        *,
        timeout_grace: float = TIMEOUT_GRACE,
    ) -> None:
        self._process = process
        self._find = find
        self._events = events
        self._timeout_grace = timeout_grace
        self._ordered: OrderedDict[int, None] = OrderedDict()
        process.messenger.on(RUN, self._take)

    def _take(self, message: Message) -> bool:
        """Take an order; False when the process stops and can take none."""
        order = order_of(message.data)
        if order.run_id in self._ordered:
            return True
        try:
            self._process.run_in_background(self._carry_out(order))
        except ProcessStopping:
            return False
        self._ordered[order.run_id] = None
        if len(self._ordered) > REMEMBERED:
            self._ordered.popitem(last=False)
        return True

    async def _carry_out(self, order: Order) -> None:
        began = asyncio.get_running_loop().time()
        self._process.scheduled_runs += 1
        report = Report(run_id=order.run_id, status=RunStatus.CANCELED, error="its process had to end")
        try:
            report = await self._run(order)
        except asyncio.CancelledError:
            self._process.messenger.send_to_agent(ENDED, to_json(report))  # there is no time to wait for an answer
            raise
        finally:
            self._process.scheduled_runs -= 1
            self._say(order, report, asyncio.get_running_loop().time() - began)
        await self._report(report)

    async def _run(self, order: Order) -> Report:
        """Run it; whatever it raises is its outcome, except that the process ends."""
        time = asyncio.timeout(order.timeout)
        try:
            function = await in_thread(self._find, order.function, name=f"import-{order.run_id}")
            async with time:
                with self._hard_limit(order):
                    await self._call(function, order)
        except BaseException as error:
            if _is_the_end_of_the_process(error):
                raise
            if isinstance(error, TimeoutError) and time.expired():
                words_ = f"it took longer than {order.timeout:g} s"
                return Report(run_id=order.run_id, status=RunStatus.TIMEOUT, error=words_)
            return _failed(order, error)
        return Report(run_id=order.run_id, status=RunStatus.DONE)

    @contextmanager
    def _hard_limit(self, order: Order) -> Iterator[None]:
        """Have the process ended if what is inside has not returned some time after the order's time-out."""
        if order.timeout is None:
            yield
            return
        reason = (
            f"schedule {order.schedule} (run {order.run_id}) did not return within "
            f"{format_duration(self._timeout_grace)} after its timeout of {format_duration(order.timeout)}"
        )
        ends_at = order.timeout + self._timeout_grace
        timer = asyncio.get_running_loop().call_later(ends_at, self._process.end_with_stuck_code, reason)
        try:
            yield
        finally:
            timer.cancel()

    async def _call(self, function: object, order: Order) -> None:
        if not callable(function):
            raise NotAFunction(order.function, function)
        context = ScheduleContext(order, self._process)
        args = order.args if isinstance(order.args, list) else []
        named = order.args if isinstance(order.args, dict) else {}
        if _wants_context(function):
            args = [context, *args]
        if inspect.iscoroutinefunction(function):
            await cast("Awaitable[object]", function(*args, **named))
        else:
            await _in_thread(lambda: function(*args, **named), context)

    async def _report(self, report: Report) -> None:
        """Tell the agent until it has written it."""
        pause, longest = REPORT_AGAIN
        while True:
            try:
                await self._process.messenger.request("agent", ENDED, to_json(report))
            except (NoReply, RequestFailed, Undeliverable):
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                return

    def _say(self, order: Order, report: Report, seconds: float) -> None:
        self._events.emit(
            ScheduleRunEnded(
                schedule=order.schedule,
                run_id=order.run_id,
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
            await ended_anyway(ended)
        raise
    ended.result()


def _wants_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some functions in C do not tell
        return False
    return bool(parameters) and parameters[0] == "ctx"


def _is_the_end_of_the_process(error: BaseException) -> bool:
    """Whether the run is being cancelled: a CancelledError that nobody has asked for is a failure like others."""
    task = asyncio.current_task()
    return isinstance(error, GeneratorExit) or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )


def _failed(order: Order, error: BaseException) -> Report:
    raised = error.raised if isinstance(error, ExitInThread) else error
    return Report(
        run_id=order.run_id,
        status=RunStatus.FAILED,
        error=cut(words(raised), LONGEST_WORDS),
        traceback=cut("".join(traceback.format_exception(raised)), LONGEST_WORDS),
    )
