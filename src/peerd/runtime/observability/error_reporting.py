"""Gives the errors of the user's code to the hook of [errors], in a thread of its own.

The events of a process say what has failed; one listener serves all kinds. A hook that raises, or does not return,
harms nothing: reports wait for it up to a number, then they are dropped, and the log says so once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from queue import SimpleQueue
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from peerd.domain.schedule import RunStatus
from peerd.runtime.observability import events
from peerd.runtime.observability.events import ErrorHookFailed, Event, EventBus
from peerd.runtime.process.exit_codes import CRASHED
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback


class ErrorKind(StrEnum):
    """What has failed."""

    HANDLER = "handler"
    """An attempt of a handler, by an exception or its time-out."""
    CRASH = "crash"
    """Tasks whose process died while it ran them."""
    PROCESS = "process"
    """A process that did not boot, or ended by itself."""
    LOOP = "loop"
    """A round of a periodic worker."""
    SCHEDULE = "schedule"
    """A scheduled function."""
    MESSAGE = "message"
    """A message handler."""
    REQUEST = "request"
    """A web request."""
    BACKGROUND = "background"
    """Background work."""
    HOOK = "hook"
    """A hook before or after an attempt."""
    UNCAUGHT = "uncaught"
    """An exception that nothing has caught, of an asyncio task, a callback, a thread or a finalizer."""


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error of the user's code.

    Attributes:
        kind: what has failed.
        error: the error in a line.
        what: its name: of the handler, the worker, the schedule, the message's action, the request's path, the slot.
        traceback: as text; None where there is none, as when a process was killed.
        exception: the exception itself, if it was raised in this process.
        node: the node.
        slot: the slot of the process that reports it, such as video-1.
        queue, handler, task_id: of the attempt.
        attempt: its number, from 1.
        will_retry: whether another attempt follows.
        tags: names and values to search by, all of them text.
    """

    kind: ErrorKind
    error: str
    what: str
    traceback: str | None = None
    exception: BaseException | None = None
    node: str = ""
    slot: str = ""
    queue: str | None = None
    handler: str | None = None
    task_id: int | None = None
    attempt: int | None = None
    will_retry: bool | None = None

    @property
    def tags(self) -> dict[str, str]:
        """What an error tracker groups and searches by.

        >>> ErrorReport(kind=ErrorKind.LOOP, error="OSError", what="Cleanup", node="a", slot="cleanup-1").tags
        {'kind': 'loop', 'what': 'Cleanup', 'node': 'a', 'slot': 'cleanup-1'}
        """
        names = ("kind", "what", "node", "slot", "queue", "handler", "task_id", "attempt", "will_retry")
        return {name: str(value) for name in names if (value := getattr(self, name)) not in {None, ""}}


ErrorHook = Callable[[ErrorReport], object]
"""The function that [errors] hook names."""


MAX_WAITING: Final = 1_000
"""Reports that wait for the hook."""
HUNG_AFTER: Final = 60.0
"""Seconds after which a call of the hook is reported that has not returned."""
FINISH_WITHIN: Final = 2.0
"""Seconds that the end of a process waits for the hook."""
FINISHED: Final = {"done", "snoozed", "released", "canceled", "unknown"}
"""Outcomes of attempts that are no errors."""
FAILED_RUNS: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.DIED)


# the kind of an error with a traceback, and the field that says what has failed
_REPORTED: Final[dict[type[Event], tuple[ErrorKind, str]]] = {
    events.PeriodicLoopEnded: (ErrorKind.LOOP, "worker"),
    events.ScheduleRunEnded: (ErrorKind.SCHEDULE, "schedule"),
    events.MessageHandlerFailed: (ErrorKind.MESSAGE, "action"),
    events.WebRequestFailed: (ErrorKind.REQUEST, "what"),
    events.BackgroundWorkFailed: (ErrorKind.BACKGROUND, "name"),
    events.AttemptHookFailed: (ErrorKind.HOOK, "hook"),
}


def report_of(event: Event) -> ErrorReport | None:  # noqa: PLR0911 - a table
    """The report of an event, if it is an error of the user's code.

    >>> report = report_of(events.BackgroundWorkFailed(name="refresh", error="OSError: no"))
    >>> report.kind, report.what, report.error
    (<ErrorKind.BACKGROUND: 'background'>, 'refresh', 'OSError: no')
    >>> report_of(events.ChoreRan(chore="purge done", count=3))
    """
    match event:
        case events.AttemptEnded():
            return _report_of_attempt(event)
        case events.TasksRescued():
            tasks = ", ".join(map(str, event.task_ids[:20]))
            return ErrorReport(kind=ErrorKind.CRASH, what=f"tasks {tasks}", error=event.cause)
        case events.ProcessExited(expected=False) if event.status != CRASHED:  # of that, it has reported the exception
            return ErrorReport(kind=ErrorKind.PROCESS, what=event.slot, error=event.cause)
        case events.PeriodicLoopEnded(error=None):
            return None
        case events.ScheduleRunEnded() if event.status not in FAILED_RUNS:
            return None
    if (row := _REPORTED.get(type(event))) is None:
        return None
    kind, name = row
    failed: Any = event
    return ErrorReport(kind=kind, what=getattr(event, name), error=failed.error or "", traceback=failed.traceback)


def _report_of_attempt(event: events.AttemptEnded) -> ErrorReport | None:
    """A handler that asks for another attempt (Retry) has made no error; one that gives its task up has."""
    is_error = event.traceback is not None or event.retry_in is None or event.outcome == "timeout"
    if event.outcome in FINISHED or not is_error:
        return None
    return ErrorReport(
        kind=ErrorKind.HANDLER,
        what=f"{event.queue}/{event.name}" if event.name else event.queue,
        error=event.error or "",
        traceback=event.traceback,
        queue=event.queue,
        handler=event.name,
        task_id=event.task_id,
        attempt=event.number,
        will_retry=event.retry_in is not None,
    )


class ErrorReporter:
    """Calls the hook, in a thread, with the errors among the events; for `EventBus.listen_with_exceptions`."""

    def __init__(
        self, hook: ErrorHook, events: EventBus, *, node: str, slot: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hook = hook
        self._events = events
        self._node = node
        self._slot = slot
        self._clock = clock
        # Reentrant, as a finalizer may fail while a report is put; None ends a wait for all reports before it.
        self._reports: SimpleQueue[ErrorReport | threading.Event] = SimpleQueue()
        self._calling_since: float | None = None
        self._has_complained = False
        threading.Thread(target=self._run, name="peerd-errors", daemon=True).start()

    def __call__(self, event: Event, exception: BaseException | None) -> None:
        """Report an event, if it is an error."""
        report = report_of(event)
        if report is not None:
            self.submit(replace(report, exception=exception))

    def report_exception(self, kind: ErrorKind, what: str, error: BaseException) -> None:
        """Report an exception for which there is no event."""
        text, trace = describe_exception(error), format_traceback(error)
        self.submit(ErrorReport(kind=kind, what=what, error=text, traceback=trace, exception=error))

    def submit(self, report: ErrorReport) -> None:
        """Give a report to the thread; from any thread, and without waiting."""
        since = self._calling_since
        if since is not None and self._clock() - since > HUNG_AFTER:
            self._complain(f"it has not returned for {HUNG_AFTER:g} s; reports wait, and are dropped beyond a number")
        if self._reports.qsize() >= MAX_WAITING:
            self._complain(f"{MAX_WAITING:,} reports wait for it; further ones are dropped")
            return
        self._reports.put(replace(report, node=self._node, slot=self._slot))

    def finish(self, within: float = FINISH_WITHIN) -> None:
        """Wait until the hook has had all reports, at most so many seconds."""
        finished = threading.Event()
        self._reports.put(finished)
        finished.wait(within)

    def _run(self) -> None:
        while True:
            report = self._reports.get()
            if isinstance(report, threading.Event):
                report.set()
                continue
            self._calling_since = self._clock()
            try:
                self._hook(report)
            except BaseException as error:  # noqa: BLE001 - the user's code
                self._complain(describe_exception(error), format_traceback(error))
            self._calling_since = None
            del report  # its exception holds the frames of its traceback

    def _complain(self, error: str, traceback: str | None = None) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._events.emit(ErrorHookFailed(error=error, traceback=traceback))
