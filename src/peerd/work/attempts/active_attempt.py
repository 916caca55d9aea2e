"""A claimed task in this process, and the events about its claim and its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.outcome import (
    UNKNOWN_LABEL,
    Canceled,
    Deferred,
    Done,
    Failed,
    Outcome,
    Released,
    Snoozed,
    StuckAttempt,
    transition_after,
)
from peerd.domain.task import Task
from peerd.runtime.observability.events import AttemptEnded, ClaimLost
from peerd.store.outcomes import ClaimId
from peerd.work.attempts.attempt_execution import Execution
from peerd.work.attempts.attempt_outcome import StopReason
from peerd.work.attempts.handler_process import HandlerProcessError

NOT_STARTED: Final = Released("it has not begun")


class ActiveAttempt:
    """A claimed task: prefetched, running, or ended and waiting to be written.

    `since` is the event loop's time of the claim, and later of the start.
    """

    __slots__ = ("asyncio_task", "execution", "held", "outcome", "refused_outcome", "seconds", "since", "task")

    def __init__(self, task: Task, since: float) -> None:
        self.task = task
        self.held = ClaimId(task.id, task.lease)
        self.execution: Execution | None = None
        self.asyncio_task: asyncio.Task[None] | None = None
        self.outcome: Outcome = NOT_STARTED
        self.refused_outcome: Outcome | None = None
        """What the database has refused, so that a failure is written instead."""
        self.since = since
        self.seconds = 0.0
        """How long it ran."""

    @property
    def is_stuck(self) -> bool:
        """Whether its code still runs after the hard limit of its time."""
        return self.execution is not None and self.execution.is_stuck

    def take_raised(self) -> BaseException | None:
        """The exception that its code has raised, for an event; it is kept no longer."""
        execution = self.execution
        if execution is None or execution.raised is None:
            return None
        raised, execution.raised = execution.raised, None
        return None if isinstance(raised, HandlerProcessError) else raised  # which was raised in another process


def seconds_until_finish(task: Task) -> float | None:
    """Seconds from the claim to ``finish_at``: both times are the database's, so no node's clock matters."""
    if task.finish_at is None or task.worker_started_at is None:
        return None
    return (task.finish_at - task.worker_started_at).total_seconds()


def seconds_from_due_to_claim(task: Task) -> float | None:
    """How long a task waited after it was due; both times are the database's.

    None of a later claim without a start_at, such as that of a task that was retried by hand days after its enqueuing:
    no column has the time at which it became due again.
    """
    if task.worker_started_at is None or (task.start_at is None and task.lease > 1):
        return None
    return (task.worker_started_at - (task.start_at or task.created_at)).total_seconds()


def claim_lost_event(task: Task, noticed_at: str) -> ClaimLost:
    """The event of a claim that is not held any more."""
    return ClaimLost(task_id=task.id, queue=task.queue, name=task.name, noticed_at=noticed_at)


def attempt_ended_event(task: Task, outcome: Outcome, seconds: float) -> AttemptEnded:
    """The event of an attempt's end."""
    fields: dict[str, Any]
    match outcome:
        case Done():
            fields = {"outcome": "done"}
        case Failed():
            fields = _failure_fields(task, outcome, seconds)
        case Snoozed():
            fields = {"outcome": "snoozed", "error": outcome.reason, "retry_in": outcome.after}
        case Deferred():
            fields = {"outcome": UNKNOWN_LABEL, "error": outcome.reason, "retry_in": outcome.after}
        case Canceled():
            fields = {"outcome": "canceled", "error": outcome.reason}
        case Released():
            fields = {"outcome": "released", "error": outcome.reason}
    wait = seconds_from_due_to_claim(task)
    about: dict[str, Any] = {"task_id": task.id, "queue": task.queue, "name": task.name, "number": task.attempts + 1}
    return AttemptEnded(seconds=seconds, wait=wait, **about, **fields)


def _failure_fields(task: Task, failed: Failed, seconds: float) -> dict[str, Any]:
    """The transition that was written: after the last attempt no other follows, whatever the handler asked for."""
    began = task.worker_started_at or datetime.min.replace(tzinfo=UTC)
    verdict = transition_after(task, failed, began + timedelta(seconds=seconds))
    retry_in = None if verdict.event is TaskEvent.DIE else failed.retry_in
    return {"outcome": verdict.label, "error": failed.error, "retry_in": retry_in, "traceback": failed.traceback}


def build_stuck_attempt(attempt: ActiveAttempt, seconds: float) -> StuckAttempt | None:
    """What the agent writes when the process of an attempt that is stuck is dead; None if its claim is lost."""
    execution, task = attempt.execution, attempt.task
    assert execution is not None
    if execution.stop_reason is StopReason.LOST:
        return None
    label = "canceled" if execution.stop_reason is StopReason.FINISH_AT else "timeout"
    error = f"it {execution.hard_limit_text}; its process was ended"
    retry_in = None if label == "canceled" else execution.delay()
    failed = Failed(error=error, retry_in=retry_in, label=label)
    return StuckAttempt(
        task_id=task.id,
        lease=task.lease,
        queue=task.queue,
        name=task.name,
        seconds=seconds,
        label=label,
        error=error,
        traceback=execution.current_traceback(),
        retry_in=retry_in,
        is_last=_failure_fields(task, failed, seconds)["retry_in"] is None,
    )
