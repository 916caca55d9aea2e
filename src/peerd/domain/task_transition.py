"""What becomes of a task after an attempt that did not succeed: a pure function of row, outcome and time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from peerd.domain.lifecycle import Event
from peerd.domain.outcome import Canceled, Deferred, Failed, Outcome, Released, Snoozed
from peerd.domain.task import LATEST, Task

UNKNOWN: Final = "unknown"
"""The label of an attempt that was none: the process did not know the task."""
RELEASED: Final = "released"
"""The label of one whose process had to end."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The event that follows, and what is written about the attempt."""

    event: Event
    counted: bool
    """Whether the attempt counts."""
    start_at: datetime | None = None
    """When it may run next; None leaves the column as it is."""
    label: str
    """The outcome column of the attempt."""
    error: str | None = None
    traceback: str | None = None
    cause: str | None = None
    """How the process died, where it did."""


def judge(task: Task, outcome: Outcome, now: datetime) -> Verdict:
    """What becomes of a working task.

    Args:
        task: its row; ``attempts`` does not count the attempt that is judged.
        outcome: how the attempt ended; not `Done`, which needs no verdict.
        now: the database's clock.

    Raises:
        ValueError: the attempt succeeded.
    """
    match outcome:
        case Failed():
            return _judge_failure(task, outcome, now)
        case Snoozed(after, reason):
            return Verdict(event=Event.SNOOZE, counted=False, start_at=later(now, after), label="snoozed", error=reason)
        case Deferred(after, reason):
            return Verdict(event=Event.DEFER, counted=False, start_at=later(now, after), label=UNKNOWN, error=reason)
        case Canceled(reason):
            return Verdict(event=Event.CANCEL, counted=True, label="canceled", error=reason)
        case Released(reason):
            return Verdict(event=Event.RELEASE, counted=False, label=RELEASED, error=reason)
        case _ as done:
            raise ValueError(f"{done} needs no verdict")


def judge_crash(task: Task, label: str, cause: str) -> Verdict:
    """What becomes of a task whose holder died: the attempt counts, and the next one is due at once."""
    error = f"its process died: {cause}"
    if exhausted(task):
        return Verdict(
            event=Event.DIE, counted=True, label=label, error=f"{error}; that was the last attempt", cause=cause
        )
    return Verdict(event=Event.RESCUE, counted=True, label=label, error=error, cause=cause)


def labels_of(outcome: Outcome) -> tuple[str, ...]:
    """The labels that `judge` may give an outcome.

    >>> labels_of(Failed(error="no"))
    ('failure', 'dead')
    """
    match outcome:
        case Failed(label=label):
            return (label, "dead") if label == "failure" else (label,)
        case Snoozed():
            return ("snoozed",)
        case Deferred():
            return (UNKNOWN,)
        case Canceled():
            return ("canceled",)
        case Released():
            return (RELEASED,)
        case _:
            return ()


def exhausted(task: Task) -> bool:
    """Whether the attempt that runs now is the last one."""
    return task.attempts + 1 >= (task.max_attempts or 1)


def later(now: datetime, seconds: float) -> datetime:
    """A moment after ``now``, at most the latest that every database holds.

    >>> from datetime import UTC
    >>> later(datetime(2026, 1, 1, tzinfo=UTC), 1e12) == LATEST
    True
    """
    try:
        return min(now + timedelta(seconds=max(seconds, 0.0)), LATEST)
    except OverflowError:
        return LATEST


def _judge_failure(task: Task, failed: Failed, now: datetime) -> Verdict:
    if failed.retry_in is None or exhausted(task):
        return _dead(failed, failed.error)
    next_start = later(now, failed.retry_in)
    if task.finish_at is not None and next_start >= task.finish_at:
        return _dead(failed, f"{failed.error}\n(its finish_at comes before the next attempt, {next_start:%F %T} UTC)")
    return Verdict(
        event=Event.FAIL,
        counted=True,
        start_at=next_start,
        label=failed.label,
        error=failed.error,
        traceback=failed.traceback,
        cause=failed.cause,
    )


def _dead(failed: Failed, error: str) -> Verdict:
    label = "dead" if failed.label == "failure" else failed.label
    return Verdict(
        event=Event.DIE, counted=True, label=label, error=error, traceback=failed.traceback, cause=failed.cause
    )
