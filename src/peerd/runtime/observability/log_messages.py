"""The log lines of events, and the set-up of the log. Code that does the work only emits events."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
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

MESSAGES: Final[Mapping[type[Event], tuple[str, str, str]]] = {
    events.TasksClaimed: ("debug", "claimed", "tasks=count ms=milliseconds"),
    events.AttemptStarted: ("debug", "attempt began", "task=task_id queue handler=name attempt=number"),
    events.ClaimLost: ("warning", "the claim of a task was lost", "task=task_id queue handler=name noticed_at"),
    events.LimitedTaskEnded: ("debug", "a limited task has ended", "queue"),
    events.AttemptUnresponsive: (
        "warning",
        "a handler was asked to end and still runs",
        "task=task_id queue handler=name because=stop_reason",
    ),
    events.UnknownClaimReleased: ("warning", "released a claimed task that did not run here", "task=task_id"),
    events.ErrorHookFailed: ("error", "the hook of [errors] failed; said once", "error exception=traceback"),
    events.TaskLinesDropped: ("warning", "log lines of attempts were dropped", "lines=count because=reason"),
    events.AttemptHookFailed: ("error", "a hook failed", "hook error exception=traceback"),
    events.WebRequestFailed: ("error", "a request failed", "what error exception=traceback"),
    events.WebRequestsAborted: ("warning", "unanswered requests were aborted after the grace", "requests connections"),
    events.QueueClientRefused: ("warning", "a queue client was refused: there are too many (max_connections)", "most"),
    events.SlowQueueClientDisconnected: ("warning", "a queue client was disconnected: it reads too slowly", "unread"),
    events.QueueOperationFailed: ("error", "an operation of a queue client failed", "error"),
    events.AcceptFailed: ("error", "a connection could not be accepted", "error"),
    events.DatabaseOutageStarted: ("error", "the database does not answer; waiting for it", "reason"),
    events.DatabaseOutageEnded: ("info", "the database answers again", "after=seconds"),
    events.ComponentFailed: ("error", "a component failed", "component error again_in failures"),
    events.ComponentEnded: ("info", "a component has ended by itself", "component"),
    events.FilesChanged: ("info", "files have changed; reloading", "files"),
    events.NodeRegistered: ("info", "node registered", "node id=node_id"),
    events.WaitingForNode: (
        "warning",
        "an earlier incarnation of this node may still run; waiting until it has been silent long enough",
        "node seconds",
    ),
    events.NodeSuperseded: ("error", "this node was replaced, and stops", "node reason"),
    events.MasterDied: ("error", "the master has died; this node ends", "node"),
    events.NodesMarkedInactive: ("warning", "nodes fell silent", "nodes"),
    events.ChoreRan: ("debug", "chore ran", "chore rows=count"),
    events.BulkChunkDone: ("debug", "a chunk of a bulk action was done", "bulk=bulk_id action tasks=rows"),
    events.RescueSuspended: ("info", "no rescues yet", "seconds because=reason"),
    events.PinnedTasksBlocked: ("warning", "tasks wait for silent nodes", "tasks=count policy"),
    events.DatabaseSlowdownDetected: ("warning", "{event.subject}: {event.message}", "remedy"),
    events.DatabaseAway: ("error", "the database is away", "seconds reason"),
    events.DatabaseBack: ("info", "the database is back", "seconds"),
    events.QueueBacklogEnded: ("info", "tasks of queue {event.queue} wait no longer", "queue seconds"),
    events.StorageConditionFound: ("warning", "{event.text}", "condition disk"),
    events.StorageConditionEnded: ("info", "{event.text}", "condition disk seconds"),
    events.BadCopiesFound: ("error", "copies are damaged or missing", "disk path files bad found_by"),
    events.AlertRaised: ("error", "alert: {event.text}", "alert of=slot"),
    events.AlertsDropped: ("warning", "a hook is too slow, alerts are dropped", "hook dropped=count"),
    events.AlertReportsDropped: (
        "warning",
        "too many alerts wait for the database, some will have no row",
        "dropped=count",
    ),
    events.AlertNotRecorded: ("error", "the row of an alert could not be written", "alert error"),
    events.MessageHandlerFailed: ("error", "a message handler failed", "action sender error exception=traceback"),
    events.MessageNotDelivered: ("warning", "a message was not delivered", "action error"),
    events.MessageDropped: ("warning", "a message was dropped: too many wait to be handled", "action sender waiting"),
    events.BackgroundWorkFailed: ("error", "background work failed", "work=name error exception=traceback"),
    events.BackgroundWorkCancelled: ("warning", "background work was cancelled", "work=names"),
    events.ScheduleRunStarted: ("debug", "scheduled run started", "schedule run=run_id slot"),
    events.ScheduleFailed: ("error", "a schedule failed", "schedule error"),
    events.NodeRequestEnded: (
        "info",
        "a request to this node ended",
        "command request=request_id by=requested_by error",
    ),
    events.ScheduleRunsLost: ("warning", "scheduled runs were lost with their node", "runs=run_ids"),
    events.RingsRejected: ("warning", "a ring was refused: {event.reason}", "sender refused=count"),
    events.ClusterBroadcastFailed: ("warning", "a message for all nodes has reached this one only", "action reason"),
}
"""Level, sentence and figures of events whose level is fixed. A figure is a field, or `figure=field`."""


def log_message_of(event: Event) -> LogMessage:  # noqa: C901, PLR0911, PLR0912 - a table of sentences
    """The log line of an event.

    >>> log_message_of(events.ChoreRan(chore="purge done", count=3))
    ('debug', 'chore ran', {'chore': 'purge done', 'rows': 3})
    """
    if (row := MESSAGES.get(type(event))) is not None:
        level, sentence, names = row
        return level, sentence.format(event=event), _figures(event, names)
    match event:
        case events.AttemptEnded():
            return _attempt_ended(event)
        case events.TasksDone():
            return "info", "tasks done", _tasks_done_figures(event)
        case events.TasksRescued():
            ids = {"tasks": len(event.task_ids), "ids": _first_ten(event.task_ids)}
            return "warning", "tasks were rescued", ids | _figures(event, "dead cause")
        case events.ReservationsReleased():
            ids = {"tasks": len(event.task_ids), "ids": _first_ten(event.task_ids)}
            return "info", "reservations were released", ids | _figures(event, "cause")
        case events.BulkActionStarted():
            count = f"{event.matched} or more" if event.at_least else event.matched
            return "info", "a bulk action began", _figures(event, "bulk=bulk_id action") | {"tasks": count}
        case events.BulkActionEnded():
            level = "info" if event.error is None and not event.failed else "error"
            figures = _figures(event, "bulk=bulk_id action done skipped failed seconds error")
            return level, f"a bulk action is {event.state}", figures
        case events.ProcessExited():
            return "info" if event.expected else "error", "process ended", _figures(event, "slot pid cause")
        case events.PeriodicLoopEnded():
            figures = _figures(event, "worker seconds error exception=traceback")
            return "error" if event.error else "debug", "loop ended", figures
        case events.WebRequestAnswered():
            figures = {"status": event.status, "ms": round(event.seconds * 1000, 1), "client": event.client}
            return "info", event.what, figures
        case events.HttpServerWarned():
            return "error" if event.error else "warning", event.text, {}
        case events.AlertDeliveryFailed():
            level, end = ("error", ", and is dropped") if event.again_in is None else ("warning", " yet")
            return level, f"an alert could not be delivered{end}", _figures(event, "hook alert error again_in")
        case events.ScheduleTickFired():
            level = {"missed": "warning", "skipped": "info"}.get(event.status, "debug")
            sentence = f"schedule {'ticked' if level == 'debug' else event.status}"
            return level, sentence, _figures(event, "schedule run=run_id tick reason late")
        case events.ScheduleRunEnded():
            return _scheduled_run_ended(event)
        case events.QueueBacklogFound():
            why = "wait for too long" if event.is_served else "wait, and no process has ever served it"
            return "warning", f"tasks of queue {event.queue} {why}", _figures(event, "queue oldest")
        case events.DoorbellStatusChanged():
            state = "works; workers poll less" if event.works else "is not known to work; workers poll"
            return "info", f"the doorbell {state}", _figures(event, "reason")
        case other:
            return "warning", f"an event without a message: {other!r}", {}


def _figures(event: Event, names: str) -> dict[str, Any]:
    """The figures of an event by names as in `MESSAGES`; None and empty ones are left out."""
    figures = {}
    for name in names.split():
        figure, _, field = name.partition("=")
        value = getattr(event, field or figure)
        match value:
            case None | "":
                continue
            case float() if figure in {"after", "again_in"}:
                value = format_duration(round(value, 1))
            case float():
                value = round(value, 1 if figure in {"ms", "late"} else 3)
            case tuple():
                value = _first_ten(value) if figure in {"files", "runs"} else ", ".join(value)
        figures[figure] = value
    return figures


def _first_ten(values: tuple[object, ...]) -> str:
    shown = ", ".join(str(value) for value in values[:10])
    return shown if len(values) <= 10 else f"{shown}, …"


def _scheduled_run_ended(event: events.ScheduleRunEnded) -> LogMessage:
    figures = _figures(event, "schedule run=run_id task=task_id error")
    match event.status:
        case "done":
            return "info", "scheduled run done", figures | _figures(event, "seconds")
        case "enqueued":
            return "info", "scheduled task enqueued", figures
        case "canceled":
            return "warning", "scheduled run canceled", figures
        case _:
            return "error", f"scheduled run {event.status}", figures | _figures(event, "exception=traceback")


def _attempt_ended(event: events.AttemptEnded) -> LogMessage:
    figures = _figures(event, "task=task_id queue handler=name seconds")
    match event.outcome:
        case "done":
            return "info", "task done", figures
        case "snoozed" | "released" | "canceled":
            return "info", f"task {event.outcome}", figures | _figures(event, "reason=error")
        case "unknown":
            return "warning", "task released for other code", figures | _figures(event, "error again_in=retry_in")
    figures |= _figures(event, "error")
    if event.retry_in is None:
        return "error", "task is dead", figures
    return "warning", "attempt failed", figures | {"retry_in": format_duration(round(event.retry_in, 3))}


def _tasks_done_figures(event: events.TasksDone) -> dict[str, Any]:
    most = sorted(event.by_handler.items(), key=lambda pair: -pair[1])[:10]
    handlers = ", ".join(f"{name} {count}" for name, count in most)
    return {"tasks": event.count, "of": handlers, "ms_each": round(event.seconds * 1000 / event.count, 1)}


def configure_logging(
    level: str, form: Literal["console", "json"], *, stream: TextIO | None = None, **bound: str
) -> structlog.stdlib.BoundLogger:
    """Set up the log of this process.

    Args:
        level: debug, info, warning or error.
        form: lines for people, or a JSON object a line.
        stream: standard error when None.
        bound: names and values for each line, such as slot and node.
    """
    out = stream or sys.stderr
    console = structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=28, sort_keys=False)
    renderers = [structlog.processors.JSONRenderer()] if form == "json" else [_escape, console]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _, __, entry: {**bound, **entry},  # in every thread, which contextvars are not
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=_time_format(form, out), utc=form == "json"),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log


def _time_format(form: str, stream: TextIO) -> str:
    """With the date in a file; on a terminal and in the journal the date is known."""
    if form == "json":
        return "iso"
    with contextlib.suppress(OSError):  # it has no descriptor
        if is_regular_file(stream.fileno()):
            return "%Y-%m-%d %H:%M:%S.%f"
    return "%H:%M:%S.%f"


def _escape(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape the texts of an entry, so that none looks like another entry; JSON does so by itself."""
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = escape_and_indent(value) if name in {"exception", "stack"} else escape_text(value)
    entry["event"] = escape_line(str(entry.get("event", "")))
    return entry


class LogEventListener:
    """Writes events to a log; for `EventBus.listen`. `bound` are names and values for each line."""

    def __init__(self, log: structlog.stdlib.BoundLogger, **bound: str) -> None:
        self._log = log.bind(**bound)
        self._skipped_kinds = () if self._log.is_enabled_for(logging.DEBUG) else events.DEBUG_EVENTS

    def accepts(self, kind: type[Event]) -> bool:
        """Whether events of a kind are written at the level of this log."""
        return kind not in self._skipped_kinds

    def __call__(self, event: Event) -> None:
        if not self.accepts(type(event)):
            return
        level, sentence, figures = log_message_of(event)
        getattr(self._log, level)(sentence, **figures)
