"""The outcomes of an attempt, returned or raised by a handler, and the transition of the task that follows from each.

A transition is a pure function of row, outcome and time; the store writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Self

import msgspec

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.task import LATEST, Task
from peerd.domain.units import parse_duration

ERROR_LIMIT: Final = 8 * 1024
"""Characters of an error text; a longer one is cut in its middle."""
TRACEBACK_LIMIT: Final = 64 * 1024
RESULT_LIMIT: Final = 1024 * 1024
"""Bytes of a result's JSON; larger ones belong into a file or a table of the application."""


class OutcomeSignal(Exception):
    """An outcome that a handler asks for, by returning it or by raising it."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Retry(OutcomeSignal):
    """The attempt failed; try again later, unless it was the last.

    Args:
        after: until the next attempt, seconds or "10s"; None takes it from the handler's backoff.
        reason: for people.
    """

    def __init__(self, after: str | float | None = None, reason: str = "") -> None:
        self.after = None if after is None else parse_duration(after)
        super().__init__(reason or "the handler asked for another attempt")


class Snooze(OutcomeSignal):
    """Not now: run it after a while; the attempt does not count.

    Args:
        after: seconds, or "1h".
        reason: for people.
    """

    def __init__(self, after: str | float, reason: str = "") -> None:
        self.after = parse_duration(after)
        super().__init__(reason or "the handler asked to be run later")


class Cancel(OutcomeSignal):
    """The task is not needed any more."""


class Dead(OutcomeSignal):
    """The task can never succeed; keep it for people to inspect."""


class Done(msgspec.Struct, frozen=True):
    """The handler succeeded; ``result`` is JSON text, or None."""

    result: str | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed and counts.

    ``retry_in`` is seconds until the next attempt; None: there is none, and the task is dead. ``label`` is the outcome
    column of the attempt: failure, dead, timeout. ``cause`` is how its process died, if it did.
    """

    error: str
    traceback: str | None = None
    retry_in: float | None = None
    label: str = "failure"
    cause: str | None = None


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to run again after ``after`` seconds."""

    after: float
    reason: str


class Canceled(msgspec.Struct, frozen=True):
    """The handler reported that the task is not needed any more."""

    reason: str


class Released(msgspec.Struct, frozen=True):
    """The process ends, and gives the task back."""

    reason: str


class Deferred(msgspec.Struct, frozen=True):
    """The process does not know the task's handler, or its arguments; another may claim it after ``after`` seconds."""

    after: float
    reason: str


Outcome = Done | Failed | Snoozed | Canceled | Released | Deferred


class StuckAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt whose code does not end although its time is over.

    A thread cannot be cancelled, and a coroutine can swallow its cancellation. No other process may run the task while
    the code runs, so the outcome is not written yet: it goes to the master, comes back with the death of the process,
    and is written by the agent then, fenced by the lease as every other outcome.

    >>> stuck = StuckAttempt(task_id=1, lease=2, queue="q", name="it", seconds=60.0, label="timeout", error="too long")
    >>> StuckAttempt.from_json(stuck.to_json()) == stuck
    True
    """

    task_id: int
    lease: int
    queue: str
    name: str
    seconds: float  # how long it had run
    label: str  # the attempt's outcome: `timeout`, or `canceled` after its finish_at
    error: str
    traceback: str | None = None  # where its code was
    retry_in: float | None = None  # seconds until the next attempt, if the policy of the task has one left
    is_last: bool = False

    def outcome(self, cause: str) -> Failed | Canceled:
        """The outcome to write; ``cause`` is how the process died."""
        if self.label == "canceled":
            return Canceled(self.error)
        return Failed(error=self.error, traceback=self.traceback, retry_in=self.retry_in, label=self.label, cause=cause)

    def to_json(self) -> dict[str, Any]:
        """The content of a frame."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the content of a frame; raises msgspec.ValidationError for anything else."""
        return msgspec.convert(data, cls)


def truncate(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters, without characters that databases refuse.

    The middle is left out: the beginning of an error names the cause, its end the place.

    >>> truncate("a" * 50, 40)
    'aaaaaaaaaa … 30 characters … aaaaaaaaaa'
    >>> len(truncate("a" * 10**7, 255)) <= 255
    True
    """
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if len(text) <= limit:
        return text
    kept = (limit - len(f" … {len(text)} characters … ")) // 2
    return f"{text[:kept]} … {len(text) - 2 * kept} characters … {text[len(text) - kept :]}"


# ---------------------------------------------------------------- what follows


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
