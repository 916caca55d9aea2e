"""Rules of the holder's writes: accepted while the claim holds, and refused for ever after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from peerd.domain.lifecycle import Status, TaskEvent
from peerd.domain.outcome import Canceled, Deferred, Failed, Outcome, Released, Snoozed
from tests.model.reference.state import ModelState, ModelTask, later

Claim = tuple[int, int]


def touch(state: ModelState, claims: Iterable[Claim], now: datetime) -> set[Claim]:
    lost = set()
    for task_id, lease in claims:
        task = state.held(task_id, lease)
        if task is None:
            lost.add((task_id, lease))
        else:
            state.write(task, now, checked_at=now)
    return lost


def report_progress(state: ModelState, reports: Mapping[Claim, tuple[float, str | None]], now: datetime) -> set[Claim]:
    lost = touch(state, reports, now)
    for claim in reports.keys() - lost:
        fraction, note = reports[claim]
        state.tasks[claim[0]].progress = min(max(fraction, 0.0), 1.0)
        state.tasks[claim[0]].progress_note = note
    return lost


def complete(state: ModelState, process_id: int, results: Mapping[Claim, str | None], now: datetime) -> set[Claim]:
    """Write successes; the refused ones. What this claim had completed before is accepted again."""
    refused = set()
    for (task_id, lease), result in results.items():
        task = state.held(task_id, lease)
        if task is not None:
            state.follow(task, TaskEvent.COMPLETE, now, result=result, error=None, progress=1.0)
        elif not _was_completed(state, process_id, task_id, lease):
            refused.add((task_id, lease))
    return refused


def record_outcome(state: ModelState, process_id: int, claim: Claim, outcome: Outcome, now: datetime) -> bool:
    task = state.held(*claim)
    if task is None:
        recorded = state.attempts.get(claim)
        label = {"dead": "failure"}.get(recorded.outcome, recorded.outcome) if recorded is not None else None
        return recorded is not None and recorded.process_id == process_id and label == _label(outcome)
    match outcome:
        case Failed():
            _fail(state, task, outcome, now)
        case Snoozed(after=seconds, reason=reason):
            state.record(task, now, "snoozed", counted=False, error=reason)
            state.follow(task, TaskEvent.SNOOZE, now, start_at=later(now, seconds))
        case Deferred(after=seconds, reason=reason):
            state.record(task, now, "unknown", counted=False, error=reason)
            state.follow(task, TaskEvent.DEFER, now, start_at=later(now, seconds), error=reason)
        case Canceled(reason=reason):
            state.record(task, now, "canceled", counted=True, error=reason)
            state.follow(task, TaskEvent.CANCEL, now, attempts=task.attempts + 1, error=reason)
        case _:
            assert isinstance(outcome, Released)
            release(state, task, outcome.reason, now)
    return True


def release(state: ModelState, task: ModelTask, reason: str, now: datetime) -> None:
    state.record(task, now, "released", counted=False, error=reason)
    state.follow(task, TaskEvent.RELEASE, now)


def is_last(task: ModelTask) -> bool:
    """Whether the attempt that runs is the last. A row that somebody made working by hand says of none; so it is."""
    return task.max_attempts is None or task.attempts + 1 >= task.max_attempts


def _fail(state: ModelState, task: ModelTask, failed: Failed, now: datetime) -> None:
    start_at = None if failed.retry_in is None or is_last(task) else later(now, failed.retry_in)
    is_over = start_at is None or (task.finish_at is not None and start_at >= task.finish_at)
    label = "dead" if is_over and failed.label == "failure" else failed.label
    state.record(task, now, label, counted=True, error=failed.error, traceback=failed.traceback)
    event, due = (TaskEvent.DIE, {}) if is_over else (TaskEvent.FAIL, {"start_at": start_at})
    state.follow(task, event, now, attempts=task.attempts + 1, error=failed.error, **due)


def _was_completed(state: ModelState, process_id: int, task_id: int, lease: int) -> bool:
    task = state.tasks.get(task_id)
    return task is not None and (task.status, task.lease, task.process_id) == (Status.DONE, lease, process_id)


def _label(outcome: Outcome) -> str:
    labels = {Snoozed: "snoozed", Deferred: "unknown", Canceled: "canceled", Released: "released"}
    return outcome.label if isinstance(outcome, Failed) else labels[type(outcome)]  # type: ignore[index]
