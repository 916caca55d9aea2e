"""An attempt while its process has it: the task, how far it is, and the events of its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.outcome import (
    Deferred,
    Done,
    Failed,
    Outcome,
    Released,
    Snoozed,
    StuckAttempt,
    TaskTransition,
    transition_after,
)
from peerd.domain.task import Task
from peerd.runtime.observability.events import AttemptEnded, ClaimLost
from peerd.store.outcomes import ClaimId
from peerd.work.attempt_execution import Execution
from peerd.work.attempt_outcome import StopReason
from peerd.work.handler_process import HandlerProcessError

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

    None of a later claim without a start_at, such as the claim of a task that was retried by hand days after its
    enqueuing: no column has the time at which it became due again.
    """
    if task.worker_started_at is None or (task.start_at is None and task.lease > 1):
        return None
    return (task.worker_started_at - (task.start_at or task.created_at)).total_seconds()


def claim_lost_event(task: Task, noticed_at: str) -> ClaimLost:
    """The event of a claim that is not held any more."""
    return ClaimLost(task_id=task.id, queue=task.queue, name=task.name, noticed_at=noticed_at)


def attempt_ended_event(task: Task, outcome: Outcome, seconds: float) -> AttemptEnded:
    """The event of an attempt's end."""
    fields: dict[str, Any] = {"outcome": "done"}
    if not isinstance(outcome, Done):
        transition = _transition_of(task, outcome, seconds)
        error = outcome.error if isinstance(outcome, Failed) else outcome.reason
        fields = {"outcome": transition.label, "error": error, "traceback": transition.traceback}
        fields["retry_in"] = _retry_in(outcome, transition)
    wait = seconds_from_due_to_claim(task)
    about: dict[str, Any] = {"task_id": task.id, "queue": task.queue, "name": task.name, "number": task.attempts + 1}
    return AttemptEnded(seconds=seconds, wait=wait, **about, **fields)


def _transition_of(task: Task, outcome: Outcome, seconds: float) -> TaskTransition:
    """The transition that was written, by the database's clock at the end of the attempt."""
    began = task.worker_started_at or datetime.min.replace(tzinfo=UTC)
    return transition_after(task, outcome, began + timedelta(seconds=seconds))


def _retry_in(outcome: Outcome, transition: TaskTransition) -> float | None:
    """Seconds until the next attempt; after the last one no other follows, also if the handler asked for one."""
    match outcome:
        case Failed():
            return None if transition.event is TaskEvent.DIE else outcome.retry_in
        case Snoozed() | Deferred():
            return outcome.after
    return None


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
        is_last=_retry_in(failed, _transition_of(task, failed, seconds)) is None,
    )
