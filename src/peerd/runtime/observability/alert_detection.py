"""Detects alerts among the events of any process, and sends them to the master."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from peerd.domain.alert import MAX_GATHERED, AlertKind, AlertRate, AlertRateLimiter, subjects_of
from peerd.domain.schedule import RunStatus
from peerd.domain.units import format_duration
from peerd.runtime.observability import events
from peerd.runtime.observability.events import Event

FAILED_RUN_STATUSES: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.DIED, RunStatus.REFUSED)
MAX_RATE_PER_PROCESS: Final = AlertRate(1, 10.0)
"""The rate of each kind: a thousand tasks that die together are one message to the master, not a thousand."""

MAX_GATHERED_TEXT: Final = 500
"""Characters of each alert that is sent with others."""

DetectedAlert = tuple[AlertKind, str, dict[str, Any]]  # kind, text, data


def detect_alert(event: Event) -> DetectedAlert | None:  # noqa: PLR0911 - a table
    """The alert for an event, if there is one.

    >>> detect_alert(events.NodesMarkedInactive(nodes=("b",)))[1]
    'b fell silent; see the machine and its log: others take its tasks'
    >>> detect_alert(events.ChoreRan(chore="purge done", count=3))
    """
    match event:
        case events.AttemptEnded() if _is_dead(event):
            handler = f"{event.queue}/{event.name}" if event.name else event.queue
            text = f"task {event.task_id} ({handler}) is dead: {event.error}"
            return AlertKind.DEAD_TASKS, text, {"tasks": [event.task_id], "queue": event.queue, "handler": event.name}
        case events.TasksRescued() if event.dead:
            dead = _counted(event.dead, "task")
            text = f"{dead} dead, {', '.join(event.dead_tasks)}: it was the last attempt ({event.cause})"
            return AlertKind.DEAD_TASKS, text, {"among": list(event.task_ids[:100]), "dead": event.dead}
        case events.NodesMarkedInactive():
            text = f"{', '.join(event.nodes)} fell silent; see the machine and its log: others take its tasks"
            return AlertKind.INACTIVE_NODES, text, {"nodes": list(event.nodes)}
        case events.PinnedTasksBlocked():
            tasks = _counted(event.count, "task")
            text = f"{tasks} waiting for {', '.join(event.nodes)}, which stays silent: start it, or peerd tasks move"
            return AlertKind.PINNED_TASKS, text, {"count": event.count, "nodes": list(event.nodes)}
        case events.ComponentFailed():
            text = f"{event.component} failed: {event.error}"
            return AlertKind.EXCEPTION, text, {"component": event.component, "failures": event.failures}
        case events.DatabaseSlowdownDetected():
            text = f"{event.subject}: {event.message}; {event.remedy}"
            return AlertKind.LONG_READ_VIEW, text, {"subject": event.subject}
        case _:
            return _detect_condition(event) or _detect_failed_run(event)


def _detect_condition(event: Event) -> DetectedAlert | None:
    """The alert for what lasts: its begin, and its end."""
    match event:
        case events.QueueBacklogFound(queue=queue, is_served=True):
            text = f"tasks of {queue} wait: the oldest has been due for {format_duration(round(event.oldest))}"
            return AlertKind.BACKLOG, text, {"queue": queue, "seconds": round(event.oldest)}
        case events.QueueBacklogFound(queue=queue):
            text = f"tasks wait in {queue}, which no worker process has ever served; start a node with a worker of it"
            return AlertKind.UNSERVED_QUEUE, text, {"queue": queue, "seconds": round(event.oldest)}
        case events.QueueBacklogEnded(queue=queue):
            return AlertKind.RECOVERED, f"tasks of {queue} wait no longer", {"queue": queue}
        case events.DatabaseAway():
            text = f"the database has not answered for {format_duration(round(event.seconds))}: {event.reason}"
            return AlertKind.DATABASE_AWAY, text, {"seconds": round(event.seconds)}
        case events.DatabaseBack():
            text = f"the database answers again, after {format_duration(round(event.seconds))}"
            return AlertKind.RECOVERED, text, {"seconds": round(event.seconds)}
        case _:
            return _detect_of_storage(event)


def _detect_of_storage(event: Event) -> DetectedAlert | None:
    match event:
        case events.StorageConditionFound():
            about = {} if event.disk is None else {"disk": event.disk}
            return AlertKind(event.condition), event.text, {**about, **event.data}
        case events.StorageConditionEnded():
            about = {} if event.disk is None else {"disk": event.disk}
            return AlertKind.RECOVERED, event.text, {"condition": event.condition, **about}
        case events.BadCopiesFound():
            bad = max(event.bad, len(event.files))
            copies = "copy is" if bad == 1 else "copies are"
            text = f"disk {event.disk} ({event.path}): {bad:,} {copies} damaged or missing"
            data = {"disk": event.disk, "bad": bad, "files": list(event.files[:100]), "found_by": event.found_by}
            return AlertKind.BAD_COPIES, f"{text}, the latest was found by {event.found_by}", data
        case _:
            return None


def _detect_failed_run(event: Event) -> DetectedAlert | None:
    match event:
        case events.ScheduleRunEnded() if event.status in FAILED_RUN_STATUSES:
            reason = f": {event.error}" if event.error else ""
            text = f"run {event.run_id} of schedule {event.schedule} ended as {event.status}{reason}"
            return AlertKind.FAILED_RUNS, text, {"schedule": event.schedule, "run": event.run_id}
        case events.ScheduleFailed():
            text = f"schedule {event.schedule} does not work: {event.error}"
            return AlertKind.FAILED_RUNS, text, {"schedule": event.schedule}
        case events.ScheduleRunsLost():
            text = f"{_counted(len(event.run_ids), 'scheduled run')} lost with their node"
            return AlertKind.FAILED_RUNS, text, {"runs": list(event.run_ids[:100])}
        case _:
            return None


class GatheredAlerts:
    """Alerts of one kind that are sent as one: the latest of each subject, of so many subjects at the most.

    >>> gathered = GatheredAlerts()
    >>> for queue in ("a", "b", "a"):
    ...     _ = gathered.add((AlertKind.BACKLOG, f"tasks of {queue} wait", {"queue": queue}))
    >>> [(one["data"]["queue"], one["times"]) for one in gathered.to_json()]
    [('b', 1), ('a', 2)]
    """

    def __init__(self) -> None:
        self.latest: DetectedAlert
        self._of_subjects: dict[tuple[str, ...], tuple[DetectedAlert, int]] = {}

    def add(self, found: DetectedAlert) -> GatheredAlerts:
        """Add one; return all."""
        self.latest = found
        subjects = tuple(subjects_of(found[0], found[2]))
        _, times = self._of_subjects.pop(subjects, (None, 0))
        if len(self._of_subjects) < MAX_GATHERED:
            self._of_subjects[subjects] = found, times + 1
        return self

    def to_json(self) -> list[dict[str, Any]]:
        """The latest of each subject, with the number of alerts of the subject."""
        alike = self._of_subjects.values()
        return [{"text": text[:MAX_GATHERED_TEXT], "data": data, "times": times} for (_, text, data), times in alike]


T = TypeVar("T")


class AlertPacer(Generic[T]):
    """Sends alerts at a rate for each kind. Those beyond it are gathered, and sent when it allows. Thread-safe.

    Args:
        limit: the rate.
        clock: monotonic, in seconds.
        later: calls a function after some seconds.
        send: gets what was gathered, and how many alerts it stands for beside the latest.
    """

    def __init__(
        self,
        limit: AlertRateLimiter,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], object]], object],
        send: Callable[[T, int], None],
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._later = later
        self._send = send
        self._suppressed: dict[str, T] = {}
        self._lock = threading.Lock()

    def offer(self, kind: str, gather: Callable[[T | None], T]) -> None:
        """Send an alert at once, or, beyond the rate, one for all of its kind later.

        Args:
            kind: of the alert.
            gather: adds the alert to those that were suppressed, if there are any.
        """
        with self._lock:
            now = self._clock()
            others = self._limit.admit(kind, now)
            is_scheduled = kind in self._suppressed
            gathered = self._suppressed[kind] = gather(self._suppressed.get(kind))
            if others is not None:
                del self._suppressed[kind]
        if others is not None:
            self._send(gathered, others)
        elif not is_scheduled:
            self._later(self._limit.wait(kind, now), partial(self._flush_kind, kind))

    def flush(self) -> None:
        """Send the suppressed alerts now."""
        for kind in tuple(self._suppressed):
            self._flush_kind(kind)

    def _flush_kind(self, kind: str) -> None:
        with self._lock:
            gathered = self._suppressed.pop(kind, None)
            others = 0 if gathered is None else self._limit.release(kind, self._clock())
        if gathered is not None:
            self._send(gathered, others)


class AlertEventListener:
    """Sends the alerts among the events; for `EventBus.listen`. Thread-safe.

    `send` gets the kind, the text, and the data as named arguments; `later` calls a function after some seconds.
    """

    def __init__(
        self,
        send: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], object]], object] = lambda _, __: None,
    ) -> None:
        self._send = send
        limit = AlertRateLimiter(MAX_RATE_PER_PROCESS)
        self._pacer: AlertPacer[GatheredAlerts] = AlertPacer(limit, clock, later, self._send_alert)
        self.flush_suppressed = self._pacer.flush

    def __call__(self, event: Event) -> None:
        """Send the alert of an event."""
        if type(event) is events.AttemptEnded and event.outcome == "done":
            return  # the most frequent event
        if (found := detect_alert(event)) is not None:
            self._pacer.offer(found[0], lambda suppressed: (suppressed or GatheredAlerts()).add(found))

    def _send_alert(self, gathered: GatheredAlerts, others: int) -> None:
        kind, text, data = gathered.latest
        if others:
            self._send(kind.value, f"{text}; and {others:,} more alike", **data, alike=gathered.to_json())
        else:
            self._send(kind.value, text, **data)


def _is_dead(event: events.AttemptEnded) -> bool:
    return event.retry_in is None and event.outcome not in {"done", "snoozed", "released", "canceled"}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{' is' if count == 1 else 's are'}"
