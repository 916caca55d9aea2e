"""The transition of a task after an attempt that did not succeed: a pure function of row, outcome and time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.outcome import Canceled, Deferred, Done, Failed, Outcome, Released, Snoozed
from peerd.domain.task import LATEST, Task

UNKNOWN_LABEL: Final = "unknown"
"""The label of an attempt whose process did not know the task."""
RELEASED_LABEL: Final = "released"
"""The label of an attempt whose process ended."""

_TRANSITIONS: Final[dict[type[Outcome], tuple[TaskEvent, bool, str]]] = {
    Snoozed: (TaskEvent.SNOOZE, False, "snoozed"),
    Deferred: (TaskEvent.DEFER, False, UNKNOWN_LABEL),
    Canceled: (TaskEvent.CANCEL, True, "canceled"),
    Released: (TaskEvent.RELEASE, False, RELEASED_LABEL),
}
"""Event, whether the attempt counts, and label, of outcomes that are neither a success nor a failure."""


class TaskTransition(msgspec.Struct, frozen=True, kw_only=True):
    """The event, and the columns of the attempt."""

    event: TaskEvent
    counted: bool
    keeps_place: bool = False  # in the order of claims: it was no failure of the task
    start_at: datetime | None = None  # the task's new start_at; None leaves the column as it is
    label: str  # the outcome column of the attempt
    error: str | None = None
    traceback: str | None = None
    cause: str | None = None  # how the process died, if it did


def transition_after(task: Task, outcome: Outcome, now: datetime) -> TaskTransition:
    """The transition of a working task.

    Args:
        task: its row; ``attempts`` does not count the attempt that has ended.
        outcome: of the attempt; ValueError is raised for `Done`.
        now: the database's clock.
    """
    if isinstance(outcome, Failed):
        return _transition_after_failure(task, outcome, now)
    if isinstance(outcome, Done):
        raise ValueError(f"{outcome} needs no transition")  # noqa: TRY004 - its type is right
    event, counted, label = _TRANSITIONS[type(outcome)]
    start_at = time_after(now, outcome.after) if isinstance(outcome, Snoozed | Deferred) else None
    return TaskTransition(event=event, counted=counted, start_at=start_at, label=label, error=outcome.reason)


def transition_after_crash(task: Task, label: str, cause: str) -> TaskTransition:
    """The transition of a task whose holder died: the attempt counts, and the next one is due at once.

    The task keeps its place in the order of claims, except after a crash of a process that ran this task alone.
    """
    error = f"its process died: {cause}"
    event = TaskEvent.RESCUE
    if is_last_attempt(task):
        event, error = TaskEvent.DIE, f"{error}; that was the last attempt"
    keeps_place = label != "crash" or not task.crashes
    return TaskTransition(event=event, counted=True, keeps_place=keeps_place, label=label, error=error, cause=cause)


def outcome_labels(outcome: Outcome) -> tuple[str, ...]:
    """The labels that `transition_after` may give an outcome.

    >>> outcome_labels(Failed(error="no"))
    ('failure', 'dead')
    """
    if isinstance(outcome, Failed):
        return (outcome.label, "dead") if outcome.label == "failure" else (outcome.label,)
    return (_TRANSITIONS[type(outcome)][2],) if type(outcome) in _TRANSITIONS else ()


def is_last_attempt(task: Task) -> bool:
    """Whether the current attempt is the last one."""
    return task.attempts + 1 >= (task.max_attempts or 1)


def time_after(now: datetime, seconds: float) -> datetime:
    """A moment after ``now``, at most the latest that every database holds.

    >>> from datetime import UTC
    >>> time_after(datetime(2026, 1, 1, tzinfo=UTC), 1e12) == LATEST
    True
    """
    try:
        return min(now + timedelta(seconds=max(seconds, 0.0)), LATEST)
    except OverflowError:
        return LATEST


def _transition_after_failure(task: Task, failed: Failed, now: datetime) -> TaskTransition:
    event, error, label, next_start = TaskEvent.FAIL, failed.error, failed.label, None
    if failed.retry_in is None or is_last_attempt(task):
        event = TaskEvent.DIE
    else:
        next_start = time_after(now, failed.retry_in)
        if task.finish_at is not None and next_start >= task.finish_at:
            event = TaskEvent.DIE
            error = f"{error}\n(its finish_at comes before the next attempt, {next_start:%F %T} UTC)"
    if event is TaskEvent.DIE:
        next_start, label = None, "dead" if label == "failure" else label
    return TaskTransition(
        event=event,
        counted=True,
        start_at=next_start,
        label=label,
        error=error,
        traceback=failed.traceback,
        cause=failed.cause,
    )
