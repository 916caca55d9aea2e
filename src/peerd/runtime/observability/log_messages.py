"""All that the log says: the sentences of events, and of what nobody hears of but the log.

Code that does the work only emits: an event, where something else listens to it too, or a line of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from peerd.domain.units import format_duration
from peerd.runtime.observability import events
from peerd.runtime.observability.events import Event, LogLine

LogMessage = tuple[str, str, dict[str, Any]]  # level, sentence, figures

MESSAGES: Final[Mapping[type[Event], tuple[str, str, str]]] = {
    events.TasksClaimed: ("debug", "claimed", "tasks=count ms=milliseconds"),
    events.AttemptStarted: ("debug", "attempt began", "task=task_id queue handler=name attempt=number"),
    events.ClaimLost: ("warning", "the claim of a task was lost", "task=task_id queue handler=name noticed_at"),
    events.LimitedTaskEnded: ("debug", "a limited task has ended", "queue"),
    events.UnknownClaimReleased: ("warning", "released a claimed task that did not run here", "task=task_id"),
    events.ErrorHookFailed: ("error", "the hook of [errors] failed; said once", "error exception=traceback"),
    events.TaskLinesDropped: ("warning", "log lines of attempts were dropped", "lines=count because=reason"),
    events.AttemptHookFailed: ("error", "a hook failed", "hook error exception=traceback"),
    events.WebRequestFailed: ("error", "a request failed", "what error exception=traceback"),
    events.DatabaseOutageStarted: ("error", "the database does not answer; waiting for it", "reason"),
    events.DatabaseOutageEnded: ("info", "the database answers again", "after=seconds"),
    events.ComponentFailed: ("error", "a component failed", "component error again_in failures"),
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
    events.ScheduleFailed: ("error", "a schedule failed", "schedule error"),
    events.ScheduleRunsLost: ("warning", "scheduled runs were lost with their node", "runs=run_ids"),
    events.RingsRejected: ("warning", "a ring was refused: {event.reason}", "sender refused=count"),
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
        case LogLine():
            return event.level, event.sentence, _worded(event.figures)
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
        case events.AlertDeliveryFailed():
            level, end = ("error", ", and is dropped") if event.again_in is None else ("warning", " yet")
            return level, f"an alert could not be delivered{end}", _figures(event, "hook alert error again_in")
        case events.ScheduleRunEnded():
            return _scheduled_run_ended(event)
        case events.QueueBacklogFound():
            why = "wait for too long" if event.is_served else "wait, and no process has ever served it"
            return "warning", f"tasks of queue {event.queue} {why}", _figures(event, "queue oldest")
        case other:
            return "warning", f"an event without a message: {other!r}", {}


def _figures(event: Event, names: str) -> dict[str, Any]:
    """The figures of an event by names as in `MESSAGES`."""
    pairs = (name.partition("=") for name in names.split())
    return _worded({figure: getattr(event, field or figure) for figure, _, field in pairs})


def _worded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as the log shows them; None and empty ones are left out."""
    return {figure: _word(figure, value) for figure, value in figures.items() if value not in (None, "")}


def _word(figure: str, value: Any) -> Any:
    match value:
        case float() if figure in {"after", "again_in"}:
            return format_duration(round(value, 1))
        case float():
            return round(value, 1 if figure in {"ms", "late"} else 3)
        case tuple():
            return _first_ten(value) if figure in {"files", "runs"} else ", ".join(value)
    return value


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


# ---------------------------------------------------------------- what nobody hears of but the log


def node_registered(node: str, node_id: int) -> LogLine:
    """The node has registered a new incarnation."""
    return LogLine("info", "node registered", {"node": node, "id": node_id})


def waiting_for_node(node: str, seconds: float) -> LogLine:
    """An earlier incarnation of the node may still run; its heartbeat is watched."""
    sentence = "an earlier incarnation of this node may still run; waiting until it has been silent long enough"
    return LogLine("warning", sentence, {"node": node, "seconds": seconds})


def component_ended(component: str) -> LogLine:
    """A component of this process has returned, and is not started again."""
    return LogLine("info", "a component has ended by itself", {"component": component})


def files_changed(files: tuple[str, ...]) -> LogLine:
    """Watched files of the project have changed, which causes a reload."""
    return LogLine("info", "files have changed; reloading", {"files": files})


def node_request_ended(request_id: int, command: str, requested_by: str | None, error: str | None) -> LogLine:
    """A request to this node, of another node or of an application, was carried out or refused."""
    figures = {"command": command, "request": request_id, "by": requested_by, "error": error}
    return LogLine("info", "a request to this node ended", figures)


def attempt_unresponsive(task_id: int, queue: str, name: str, stop_reason: str) -> LogLine:
    """A handler was asked to end a while ago, by its timeout, a lost claim or the stop of its process, and runs on."""
    figures = {"task": task_id, "queue": queue, "handler": name, "because": stop_reason}
    return LogLine("warning", "a handler was asked to end and still runs", figures)


def web_requests_aborted(requests: int, connections: int) -> LogLine:
    """A web process that stops aborted requests after its grace."""
    figures = {"requests": requests, "connections": connections}
    return LogLine("warning", "unanswered requests were aborted after the grace", figures)


def http_server_warned(text: str, *, error: bool) -> LogLine:
    """The HTTP server met a faulty request, or a faulty response of the app."""
    return LogLine("error" if error else "warning", text, {})


def accept_failed(error: str) -> LogLine:
    """A connection could not be accepted, for example for lack of descriptors."""
    return LogLine("error", "a connection could not be accepted", {"error": error})


def queue_client_refused(most: int) -> LogLine:
    """A queue client was refused, because the process has as many connections as it may have."""
    return LogLine("warning", "a queue client was refused: there are too many (max_connections)", {"most": most})


def slow_queue_client_disconnected(unread: int) -> LogLine:
    """A queue client was disconnected that reads too slowly, because all clients together have left too much unread."""
    return LogLine("warning", "a queue client was disconnected: it reads too slowly", {"unread": unread})


def queue_operation_failed(error: str) -> LogLine:
    """An operation of a queue client failed for a reason that is not the client's; it was answered with an error."""
    return LogLine("error", "an operation of a queue client failed", {"error": error})


def alert_raised(alert: str, text: str, slot: str | None) -> LogLine:
    """An alert, by the hook that writes to the log."""
    return LogLine("error", f"alert: {text}", {"alert": alert, "of": slot})


def alerts_dropped(hook: str, count: int) -> LogLine:
    """A hook is so slow that the oldest alerts were dropped."""
    return LogLine("warning", "a hook is too slow, alerts are dropped", {"hook": hook, "dropped": count})


def schedule_ticked(
    *, schedule: str, run_id: int, tick: str, status: str, reason: str | None = None, late: float | None = None
) -> LogLine:
    """The node has decided about a schedule's tick, which may be late by seconds."""
    level = {"missed": "warning", "skipped": "info"}.get(status, "debug")
    sentence = f"schedule {'ticked' if level == 'debug' else status}"
    return LogLine(level, sentence, {"schedule": schedule, "run": run_id, "tick": tick, "reason": reason, "late": late})


def schedule_run_started(schedule: str, run_id: int, slot: str) -> LogLine:
    """A run of a schedule was sent to a process."""
    return LogLine("debug", "scheduled run started", {"schedule": schedule, "run": run_id, "slot": slot})


def doorbell_changed(reason: str | None, *, works: bool) -> LogLine:
    """The doorbell of this node began to work, or stopped working."""
    state = "works; workers poll less" if works else "is not known to work; workers poll"
    return LogLine("info", f"the doorbell {state}", {"reason": reason})


def cluster_broadcast_failed(action: str, reason: str) -> LogLine:
    """A message for all nodes has reached this node only."""
    return LogLine("warning", "a message for all nodes has reached this one only", {"action": action, "reason": reason})
