"""One attempt of a worker's process: what runs, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.outcome import Canceled, Deferred, Done, Failed, Outcome, Released, Snoozed, StuckAttempt
from peerd.domain.task import Task
from peerd.domain.task_transition import UNKNOWN_LABEL, transition_after
from peerd.runtime.observability.events import AttemptEnded, ClaimLost
from peerd.store.outcomes.recording import ClaimId
from peerd.work.attempts.attempt_execution import Execution
from peerd.work.attempts.time_limits import StopReason

NOT_STARTED: Final = Released("it has not begun")


class ActiveAttempt:
    """A claimed task: waiting for a place, running, or ended and waiting to be written.

    Args:
        task: its row.
        since: when it was claimed, by the event loop's clock.
    """

    __slots__ = ("asyncio_task", "execution", "held", "is_unwritable", "outcome", "seconds", "since", "task")

    def __init__(self, task: Task, since: float) -> None:
        self.task = task
        self.held = ClaimId(task.id, task.lease)
        self.execution: Execution | None = None
        self.asyncio_task: asyncio.Task[None] | None = None
        self.outcome: Outcome = NOT_STARTED
        self.is_unwritable = False
        """Whether the database has refused its outcome, so that another one is to be written."""
        self.since = since
        """When it was claimed, and then when it began, by the event loop's clock."""
        self.seconds = 0.0
        """How long it ran."""

    @property
    def is_stuck(self) -> bool:
        """Whether its time is over for good, and its code goes on."""
        return self.execution is not None and self.execution.is_stuck

    @property
    def can_be_lost(self) -> bool:
        """Whether its handler runs, and has not been told yet that the claim is lost."""
        execution = self.execution
        return execution is not None and not execution.ended and execution.stop_reason is not StopReason.LOST

    def request_stop(self, stop_reason: StopReason) -> None:
        """Tell its handler to end."""
        if self.execution is not None:
            self.execution.end(stop_reason)


def seconds_until_finish(task: Task) -> float | None:
    """How long a task may run that was just claimed: both times are the database's, so no node's clock matters."""
    if task.finish_at is None or task.worker_started_at is None:
        return None
    return (task.finish_at - task.worker_started_at).total_seconds()


def claim_lost_event(task: Task, noticed_at: str) -> ClaimLost:
    """The fact that a claim is not ours any more."""
    return ClaimLost(task_id=task.id, queue=task.queue, name=task.name, noticed_at=noticed_at)


def attempt_ended_event(task: Task, outcome: Outcome, seconds: float) -> AttemptEnded:
    """The fact of an attempt's end."""
    words: Mapping[str, Any]
    match outcome:
        case Done():
            return AttemptEnded(task_id=task.id, queue=task.queue, name=task.name, seconds=seconds, outcome="done")
        case Failed():
            words = _failure_fields(task, outcome, seconds)
        case Snoozed():
            words = {"outcome": "snoozed", "error": outcome.reason, "retry_in": outcome.after}
        case Deferred():
            words = {"outcome": UNKNOWN_LABEL, "error": outcome.reason, "retry_in": outcome.after}
        case Canceled():
            words = {"outcome": "canceled", "error": outcome.reason}
        case Released():
            words = {"outcome": "released", "error": outcome.reason}
    return AttemptEnded(task_id=task.id, queue=task.queue, name=task.name, seconds=seconds, **words)


def _failure_fields(task: Task, failed: Failed, seconds: float) -> Mapping[str, Any]:
    """How a failure was judged when it was written: after the last attempt there is no other, whatever was wished."""
    began = task.worker_started_at or datetime.min.replace(tzinfo=UTC)
    verdict = transition_after(task, failed, began + timedelta(seconds=seconds))
    retry_in = None if verdict.event is TaskEvent.DIE else failed.retry_in
    return {"outcome": verdict.label, "error": failed.error, "retry_in": retry_in}


def build_stuck_attempt(attempt: ActiveAttempt, seconds: float) -> StuckAttempt | None:
    """What becomes of the task of an attempt that is stuck; None where its claim is lost, and nothing is written.

    Args:
        attempt: that does not end.
        seconds: how long it has run.
    """
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
