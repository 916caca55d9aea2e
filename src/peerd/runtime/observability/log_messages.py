"""How events read in the log. All wording is here; code that does the work only emits facts."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, Final, Literal, TextIO

import structlog

from peerd.domain.duration import format_duration
from peerd.runtime.observability import events
from peerd.runtime.observability.escaping import harmless, indented, one_line
from peerd.runtime.observability.events import Fact
from peerd.runtime.observability.logfile import is_file

Words = tuple[str, str, dict[str, Any]]
"""A level, a sentence, and figures."""

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def worded(fact: Fact) -> Words:  # noqa: C901, PLR0911 - a table of sentences
    """How a fact reads.

    >>> worded(events.ChoreRan(chore="purge done", count=3))
    ('debug', 'chore ran', {'chore': 'purge done', 'rows': 3})
    """
    match fact:
        case events.TasksClaimed():
            return "debug", "claimed", {"tasks": fact.count, "ms": round(fact.milliseconds, 1)}
        case events.AttemptStarted():
            return "debug", "attempt began", _of_task(fact) | {"attempt": fact.number}
        case events.AttemptEnded():
            return _attempt_ended(fact)
        case events.TasksDone():
            return "info", "tasks done", _of_many(fact)
        case events.ClaimLost():
            return "warning", "task was taken from this process", _of_task(fact) | {"noticed_at": fact.noticed_at}
        case events.TurnEnded():
            return "debug", "a task that takes turns has ended", {"queue": fact.queue}
        case events.AttemptLingers():
            return "warning", "a handler was told to end and goes on", _of_task(fact) | {"because": fact.because}
        case events.StrayReleased():
            return "warning", "gave back a task whose claim was never answered", {"task": fact.task_id}
        case events.LoopEnded():
            level = "error" if fact.error else "debug"
            figures = {"worker": fact.worker, "seconds": round(fact.seconds, 3)}
            return level, "loop ended", figures | _given(error=fact.error, exception=fact.traceback)
        case events.HookFailed():
            return "error", "a hook failed", _given(hook=fact.hook, error=fact.error, exception=fact.traceback)
        case (
            events.RequestAnswered()
            | events.RequestFailed()
            | events.RequestsCutOff()
            | events.AcceptFailed()
            | events.ServerSaid()
        ):
            return _of_the_web(fact)
        case _:
            return _of_the_node(fact)


WebFact = (
    events.RequestAnswered | events.RequestFailed | events.RequestsCutOff | events.AcceptFailed | events.ServerSaid
)


def _of_the_web(fact: WebFact) -> Words:
    match fact:
        case events.RequestAnswered():
            figures = {"status": fact.status, "ms": round(fact.seconds * 1000, 1), "client": fact.client}
            return "info", fact.what, figures
        case events.RequestFailed():
            return "error", "a request failed", {"what": fact.what, "error": fact.error, "exception": fact.traceback}
        case events.RequestsCutOff():
            figures = {"requests": fact.requests, "connections": fact.connections}
            return "warning", "the grace is over; what was not answered is cut off", figures
        case events.AcceptFailed():
            return "error", "a connection could not be accepted", {"error": fact.error}
        case events.ServerSaid():
            return "error" if fact.error else "warning", fact.text, {}


def _of_the_node(fact: Fact) -> Words:  # noqa: C901, PLR0911, PLR0912 - a table of sentences
    match fact:
        case events.DatabaseLost():
            return "error", "the database does not answer; waiting for it", {"reason": fact.reason}
        case events.DatabaseFound():
            return "info", "the database answers again", {"after": format_duration(round(fact.seconds, 1))}
        case events.ComponentFailed():
            again_in = format_duration(round(fact.again_in, 1))
            return "error", "a component failed", _given(component=fact.component, error=fact.error, again_in=again_in)
        case events.ComponentEnded():
            return "info", "a component has ended by itself", {"component": fact.component}
        case events.FilesChanged():
            return "info", "files have changed; reloading", {"files": ", ".join(fact.files[:10])}
        case events.NodeRegistered():
            return "info", "node registered", {"node": fact.node, "id": fact.node_id}
        case events.WaitingForNode():
            sentence = "an earlier life of this node may go on; waiting until it has been silent long enough"
            return "warning", sentence, {"node": fact.node, "seconds": fact.seconds}
        case events.NodeMustLeave():
            return "error", "this node was replaced, and leaves", {"node": fact.node, "reason": fact.reason}
        case events.MasterDied():
            return "error", "the master has died; this node ends", {"node": fact.node}
        case events.NodesSilent():
            return "warning", "nodes fell silent", {"nodes": ", ".join(fact.nodes)}
        case events.TasksTakenBack():
            figures = {"tasks": len(fact.task_ids), "ids": _few(fact.task_ids), "dead": fact.dead, "cause": fact.cause}
            return "warning", "tasks were taken back", figures
        case events.ProcessDied():
            level = "info" if fact.expected else "error"
            return level, "process ended", {"slot": fact.slot, "pid": fact.pid, "cause": fact.cause}
        case events.ChoreRan():
            return "debug", "chore ran", {"chore": fact.chore, "rows": fact.count}
        case events.RescueHeld():
            return "info", "no rescues yet", {"seconds": round(fact.seconds, 1), "because": fact.reason}
        case events.PinnedStuck():
            return "warning", "tasks wait for silent nodes", {"tasks": fact.count, "policy": fact.policy}
        case _:
            return _of_alerts(fact)


def _of_alerts(fact: Fact) -> Words:
    match fact:
        case events.DatabaseSlowed():
            return "warning", f"{fact.subject}: {fact.message}", {"remedy": fact.remedy}
        case events.AlertRaised():
            return "error", f"alert: {fact.text}", _given(alert=fact.alert, of=fact.slot)
        case events.AlertDelayed():
            figures = {"hook": fact.hook, "alert": fact.alert, "error": fact.error}
            if fact.again_in is None:
                return "error", "an alert could not be delivered, and is given up", figures
            again_in = format_duration(round(fact.again_in, 1))
            return "warning", "an alert could not be delivered yet", figures | {"again_in": again_in}
        case events.AlertsDropped():
            return "warning", "a hook is too slow, alerts are dropped", {"hook": fact.hook, "dropped": fact.count}
        case _:
            return _of_messages(fact)


def _of_messages(fact: Fact) -> Words:
    match fact:
        case events.MessageHandlerFailed():
            figures = {"action": fact.action, "sender": fact.sender, "error": fact.error}
            return "error", "a message handler failed", figures | _given(exception=fact.traceback)
        case events.MessageNotDelivered():
            return "warning", "a message was not delivered", {"action": fact.action, "error": fact.error}
        case events.MessageDropped():
            dropped = {"action": fact.action, "sender": fact.sender, "waiting": fact.waiting}
            return "warning", "a message was dropped: too many wait to be handled", dropped
        case events.BackgroundFailed():
            figures = {"work": fact.name, "error": fact.error}
            return "error", "work in the background failed", figures | _given(exception=fact.traceback)
        case events.BackgroundAbandoned():
            return "warning", "work in the background was cancelled", {"work": ", ".join(fact.names)}
        case _:
            return _of_schedules(fact)


def _of_schedules(fact: Fact) -> Words:
    match fact:
        case events.ScheduleTickFired():
            level = {"missed": "warning", "skipped": "info"}.get(fact.status, "debug")
            late = None if fact.late is None else round(fact.late, 1)
            figures = _given(schedule=fact.schedule, run=fact.run_id, tick=fact.tick, reason=fact.reason, late=late)
            return level, f"schedule {'ticked' if level == 'debug' else fact.status}", figures
        case events.ScheduleRunBegan():
            figures = {"schedule": fact.schedule, "run": fact.run_id, "slot": fact.slot}
            return "debug", "scheduled run was given to a process", figures
        case events.ScheduleRunEnded():
            return _scheduled_run_ended(fact)
        case events.ScheduleFailed():
            return "error", "a schedule failed", {"schedule": fact.schedule, "error": fact.error}
        case events.ScheduleRunsLost():
            return "warning", "scheduled runs were lost with their node", {"runs": _few(fact.run_ids)}
        case _:
            return _of_the_bell(fact)


def _of_the_bell(fact: Fact) -> Words:
    match fact:
        case events.BellChanged(works=True):
            return "info", "the doorbell works; workers poll less", {}
        case events.BellChanged():
            return "info", "the doorbell is not known to work; workers poll", {"reason": fact.reason}
        case events.RingsRefused():
            return "warning", f"a ring was refused: {fact.reason}", {"sender": fact.sender, "refused": fact.count}
        case events.ClusterNotReached():
            figures = {"action": fact.action, "reason": fact.reason}
            return "warning", "a message for all nodes has reached this one only", figures
        case other:
            return "warning", f"an event without words: {other!r}", {}


def _scheduled_run_ended(fact: events.ScheduleRunEnded) -> Words:
    figures = _given(schedule=fact.schedule, run=fact.run_id, task=fact.task_id, error=fact.error)
    match fact.status:
        case "done":
            return "info", "scheduled run done", figures | {"seconds": round(fact.seconds, 3)}
        case "enqueued":
            return "info", "scheduled task enqueued", figures
        case "canceled":
            return "warning", "scheduled run canceled", figures
        case _:
            return "error", f"scheduled run {fact.status}", figures | _given(exception=fact.traceback)


def _attempt_ended(fact: events.AttemptEnded) -> Words:
    figures = _of_task(fact) | {"seconds": round(fact.seconds, 3)}
    match fact.outcome:
        case "done":
            return "info", "task done", figures
        case "snoozed" | "released" | "canceled":
            return "info", f"task {fact.outcome}", figures | {"reason": fact.error}
        case "unknown":
            again_in = format_duration(round(fact.retry_in or 0.0, 3))
            return "warning", "task given back for other code", figures | {"error": fact.error, "again_in": again_in}
        case _ if fact.retry_in is not None:
            retry_in = format_duration(round(fact.retry_in, 3))
            return "warning", "attempt failed", figures | {"error": fact.error, "retry_in": retry_in}
        case _:
            return "error", "task is dead", figures | {"error": fact.error}


def _of_many(fact: events.TasksDone) -> dict[str, Any]:
    most = sorted(fact.by_handler.items(), key=lambda pair: -pair[1])[:10]
    handlers = ", ".join(f"{name} {count}" for name, count in most)
    return {"tasks": fact.count, "of": handlers, "ms_each": round(fact.seconds * 1000 / fact.count, 1)}


def _of_task(
    fact: events.AttemptStarted | events.AttemptEnded | events.AttemptLingers | events.ClaimLost,
) -> dict[str, Any]:
    return _given(task=fact.task_id, queue=fact.queue, handler=fact.name or None)


def _given(**figures: Any) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value is not None}


def _few(ids: tuple[int, ...]) -> str:
    shown = ", ".join(str(one) for one in ids[:10])
    return shown if len(ids) <= 10 else f"{shown}, …"


def start_logging(
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
        if is_file(stream.fileno()):
            return "%Y-%m-%d %H:%M:%S.%f"
    return "%H:%M:%S.%f"


def _harmless(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Let nothing that an entry holds look like another entry; JSON escapes all of it anyway."""
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = indented(value) if name in {"exception", "stack"} else harmless(value)
    entry["event"] = one_line(str(entry.get("event", "")))
    return entry


def _console(stream: TextIO) -> Any:
    return structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=28, sort_keys=False)


class LogReader:
    """Reads events into the log; for `Events.listen`.

    Args:
        log: where to.
        bound: names and values for each line.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, **bound: str) -> None:
        self._log = log.bind(**bound)
        self._unheard = () if self._log.is_enabled_for(logging.DEBUG) else events.FINE

    def hears(self, kind: type[Fact]) -> bool:
        """Whether facts of a kind are written at all, at the level of this log."""
        return kind not in self._unheard

    def __call__(self, fact: Fact) -> None:
        """Write one line."""
        if not self.hears(type(fact)):
            return
        level, sentence, figures = worded(fact)
        getattr(self._log, level)(sentence, **figures)
