"""How events read in the log. All wording is here; code that does the work only emits facts."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, Final, Literal, TextIO

import structlog

from peerd.domain.duration import format_duration
from peerd.runtime.observability import events
from peerd.runtime.observability.escaping import escape_and_indent, escape_line, escape_text
from peerd.runtime.observability.events import Event
from peerd.runtime.observability.logfile import is_regular_file

LogMessage = tuple[str, str, dict[str, Any]]
"""A level, a sentence, and figures."""

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def log_message_of(event: Event) -> LogMessage:  # noqa: C901, PLR0911 - a table of sentences
    """How a fact reads.

    >>> log_message_of(events.ChoreRan(chore="purge done", count=3))
    ('debug', 'chore ran', {'chore': 'purge done', 'rows': 3})
    """
    match event:
        case events.TasksClaimed():
            return "debug", "claimed", {"tasks": event.count, "ms": round(event.milliseconds, 1)}
        case events.AttemptStarted():
            return "debug", "attempt began", _task_figures(event) | {"attempt": event.number}
        case events.AttemptEnded():
            return _attempt_ended(event)
        case events.TasksDone():
            return "info", "tasks done", _tasks_done_figures(event)
        case events.ClaimLost():
            return (
                "warning",
                "task was taken from this process",
                _task_figures(event) | {"noticed_at": event.noticed_at},
            )
        case events.LimitedTaskEnded():
            return "debug", "a task that takes turns has ended", {"queue": event.queue}
        case events.AttemptUnresponsive():
            return (
                "warning",
                "a handler was told to end and goes on",
                _task_figures(event) | {"because": event.stop_reason},
            )
        case events.UnknownClaimReleased():
            return "warning", "gave back a task whose claim was never answered", {"task": event.task_id}
        case events.PeriodicLoopEnded():
            level = "error" if event.error else "debug"
            figures = {"worker": event.worker, "seconds": round(event.seconds, 3)}
            return level, "loop ended", figures | _given(error=event.error, exception=event.traceback)
        case events.AttemptHookFailed():
            return "error", "a hook failed", _given(hook=event.hook, error=event.error, exception=event.traceback)
        case (
            events.WebRequestAnswered()
            | events.WebRequestFailed()
            | events.WebRequestsAborted()
            | events.AcceptFailed()
            | events.HttpServerWarned()
        ):
            return _web_message(event)
        case _:
            return _node_message(event)


WebEvent = (
    events.WebRequestAnswered
    | events.WebRequestFailed
    | events.WebRequestsAborted
    | events.AcceptFailed
    | events.HttpServerWarned
)


def _web_message(event: WebEvent) -> LogMessage:
    match event:
        case events.WebRequestAnswered():
            figures = {"status": event.status, "ms": round(event.seconds * 1000, 1), "client": event.client}
            return "info", event.what, figures
        case events.WebRequestFailed():
            return "error", "a request failed", {"what": event.what, "error": event.error, "exception": event.traceback}
        case events.WebRequestsAborted():
            figures = {"requests": event.requests, "connections": event.connections}
            return "warning", "the grace is over; what was not answered is cut off", figures
        case events.AcceptFailed():
            return "error", "a connection could not be accepted", {"error": event.error}
        case events.HttpServerWarned():
            return "error" if event.error else "warning", event.text, {}


def _node_message(event: Event) -> LogMessage:  # noqa: C901, PLR0911, PLR0912 - a table of sentences
    match event:
        case events.DatabaseOutageStarted():
            return "error", "the database does not answer; waiting for it", {"reason": event.reason}
        case events.DatabaseOutageEnded():
            return "info", "the database answers again", {"after": format_duration(round(event.seconds, 1))}
        case events.ComponentFailed():
            again_in = format_duration(round(event.again_in, 1))
            return (
                "error",
                "a component failed",
                _given(component=event.component, error=event.error, again_in=again_in),
            )
        case events.ComponentEnded():
            return "info", "a component has ended by itself", {"component": event.component}
        case events.FilesChanged():
            return "info", "files have changed; reloading", {"files": ", ".join(event.files[:10])}
        case events.NodeRegistered():
            return "info", "node registered", {"node": event.node, "id": event.node_id}
        case events.WaitingForNode():
            sentence = "an earlier life of this node may go on; waiting until it has been silent long enough"
            return "warning", sentence, {"node": event.node, "seconds": event.seconds}
        case events.NodeSuperseded():
            return "error", "this node was replaced, and leaves", {"node": event.node, "reason": event.reason}
        case events.MasterDied():
            return "error", "the master has died; this node ends", {"node": event.node}
        case events.NodesMarkedInactive():
            return "warning", "nodes fell silent", {"nodes": ", ".join(event.nodes)}
        case events.TasksRescued():
            figures = {
                "tasks": len(event.task_ids),
                "ids": _few(event.task_ids),
                "dead": event.dead,
                "cause": event.cause,
            }
            return "warning", "tasks were taken back", figures
        case events.ProcessExited():
            level = "info" if event.expected else "error"
            return level, "process ended", {"slot": event.slot, "pid": event.pid, "cause": event.cause}
        case events.ChoreRan():
            return "debug", "chore ran", {"chore": event.chore, "rows": event.count}
        case events.RescueSuspended():
            return "info", "no rescues yet", {"seconds": round(event.seconds, 1), "because": event.reason}
        case events.PinnedTasksBlocked():
            return "warning", "tasks wait for silent nodes", {"tasks": event.count, "policy": event.policy}
        case _:
            return _alert_message(event)


def _alert_message(event: Event) -> LogMessage:
    match event:
        case events.DatabaseSlowdownDetected():
            return "warning", f"{event.subject}: {event.message}", {"remedy": event.remedy}
        case events.AlertRaised():
            return "error", f"alert: {event.text}", _given(alert=event.alert, of=event.slot)
        case events.AlertDeliveryFailed():
            figures = {"hook": event.hook, "alert": event.alert, "error": event.error}
            if event.again_in is None:
                return "error", "an alert could not be delivered, and is given up", figures
            again_in = format_duration(round(event.again_in, 1))
            return "warning", "an alert could not be delivered yet", figures | {"again_in": again_in}
        case events.AlertsDropped():
            return "warning", "a hook is too slow, alerts are dropped", {"hook": event.hook, "dropped": event.count}
        case _:
            return _messenger_message(event)


def _messenger_message(event: Event) -> LogMessage:
    match event:
        case events.MessageHandlerFailed():
            figures = {"action": event.action, "sender": event.sender, "error": event.error}
            return "error", "a message handler failed", figures | _given(exception=event.traceback)
        case events.MessageNotDelivered():
            return "warning", "a message was not delivered", {"action": event.action, "error": event.error}
        case events.MessageDropped():
            dropped = {"action": event.action, "sender": event.sender, "waiting": event.waiting}
            return "warning", "a message was dropped: too many wait to be handled", dropped
        case events.BackgroundWorkFailed():
            figures = {"work": event.name, "error": event.error}
            return "error", "work in the background failed", figures | _given(exception=event.traceback)
        case events.BackgroundWorkCancelled():
            return "warning", "work in the background was cancelled", {"work": ", ".join(event.names)}
        case _:
            return _schedule_message(event)


def _schedule_message(event: Event) -> LogMessage:
    match event:
        case events.ScheduleTickFired():
            level = {"missed": "warning", "skipped": "info"}.get(event.status, "debug")
            late = None if event.late is None else round(event.late, 1)
            figures = _given(schedule=event.schedule, run=event.run_id, tick=event.tick, reason=event.reason, late=late)
            return level, f"schedule {'ticked' if level == 'debug' else event.status}", figures
        case events.ScheduleRunStarted():
            figures = {"schedule": event.schedule, "run": event.run_id, "slot": event.slot}
            return "debug", "scheduled run was given to a process", figures
        case events.ScheduleRunEnded():
            return _scheduled_run_ended(event)
        case events.ScheduleFailed():
            return "error", "a schedule failed", {"schedule": event.schedule, "error": event.error}
        case events.ScheduleRunsLost():
            return "warning", "scheduled runs were lost with their node", {"runs": _few(event.run_ids)}
        case _:
            return _doorbell_message(event)


def _doorbell_message(event: Event) -> LogMessage:
    match event:
        case events.DoorbellStatusChanged(works=True):
            return "info", "the doorbell works; workers poll less", {}
        case events.DoorbellStatusChanged():
            return "info", "the doorbell is not known to work; workers poll", {"reason": event.reason}
        case events.RingsRejected():
            return "warning", f"a ring was refused: {event.reason}", {"sender": event.sender, "refused": event.count}
        case events.ClusterBroadcastFailed():
            figures = {"action": event.action, "reason": event.reason}
            return "warning", "a message for all nodes has reached this one only", figures
        case other:
            return "warning", f"an event without words: {other!r}", {}


def _scheduled_run_ended(event: events.ScheduleRunEnded) -> LogMessage:
    figures = _given(schedule=event.schedule, run=event.run_id, task=event.task_id, error=event.error)
    match event.status:
        case "done":
            return "info", "scheduled run done", figures | {"seconds": round(event.seconds, 3)}
        case "enqueued":
            return "info", "scheduled task enqueued", figures
        case "canceled":
            return "warning", "scheduled run canceled", figures
        case _:
            return "error", f"scheduled run {event.status}", figures | _given(exception=event.traceback)


def _attempt_ended(event: events.AttemptEnded) -> LogMessage:
    figures = _task_figures(event) | {"seconds": round(event.seconds, 3)}
    match event.outcome:
        case "done":
            return "info", "task done", figures
        case "snoozed" | "released" | "canceled":
            return "info", f"task {event.outcome}", figures | {"reason": event.error}
        case "unknown":
            again_in = format_duration(round(event.retry_in or 0.0, 3))
            return "warning", "task given back for other code", figures | {"error": event.error, "again_in": again_in}
        case _ if event.retry_in is not None:
            retry_in = format_duration(round(event.retry_in, 3))
            return "warning", "attempt failed", figures | {"error": event.error, "retry_in": retry_in}
        case _:
            return "error", "task is dead", figures | {"error": event.error}


def _tasks_done_figures(event: events.TasksDone) -> dict[str, Any]:
    most = sorted(event.by_handler.items(), key=lambda pair: -pair[1])[:10]
    handlers = ", ".join(f"{name} {count}" for name, count in most)
    return {"tasks": event.count, "of": handlers, "ms_each": round(event.seconds * 1000 / event.count, 1)}


def _task_figures(
    event: events.AttemptStarted | events.AttemptEnded | events.AttemptUnresponsive | events.ClaimLost,
) -> dict[str, Any]:
    return _given(task=event.task_id, queue=event.queue, handler=event.name or None)


def _given(**figures: Any) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value is not None}


def _few(ids: tuple[int, ...]) -> str:
    shown = ", ".join(str(one) for one in ids[:10])
    return shown if len(ids) <= 10 else f"{shown}, …"


def configure_logging(
    level: str, form: Literal["console", "json"], *, stream: TextIO | None = None, **bound: str
) -> structlog.stdlib.BoundLogger:
    """Set this process's log up; what is bound (slot, node) stands in each line.

    Args:
        level: debug, info, warning or error.
        form: lines for people, or a JSON object a line.
        stream: where to; standard error when None.
        bound: names and values for each line.
    """
    out = stream or sys.stderr
    how = [structlog.processors.JSONRenderer()] if form == "json" else [_harmless, _console(out)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _, __, entry: {**bound, **entry},  # in every thread, which contextvars are not
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=_time_format(form, out), utc=form == "json"),
            structlog.processors.format_exc_info,
            *how,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log


def _time_format(form: str, stream: TextIO) -> str:
    """A terminal and the journal know the day; a file may be read much later."""
    if form == "json":
        return "iso"
    with contextlib.suppress(OSError):  # it has no descriptor
        if is_regular_file(stream.fileno()):
            return "%Y-%m-%d %H:%M:%S.%f"
    return "%H:%M:%S.%f"


def _harmless(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Let nothing that an entry holds look like another entry; JSON escapes all of it anyway."""
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = escape_and_indent(value) if name in {"exception", "stack"} else escape_text(value)
    entry["event"] = escape_line(str(entry.get("event", "")))
    return entry


def _console(stream: TextIO) -> Any:
    return structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=28, sort_keys=False)


class LogEventListener:
    """Reads events into the log; for `Events.listen`.

    Args:
        log: where to.
        bound: names and values for each line.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, **bound: str) -> None:
        self._log = log.bind(**bound)
        self._skipped_kinds = () if self._log.is_enabled_for(logging.DEBUG) else events.DEBUG_EVENTS

    def accepts(self, kind: type[Event]) -> bool:
        """Whether facts of a kind are written at all, at the level of this log."""
        return kind not in self._skipped_kinds

    def __call__(self, event: Event) -> None:
        """Write one line."""
        if not self.accepts(type(event)):
            return
        level, sentence, figures = log_message_of(event)
        getattr(self._log, level)(sentence, **figures)
