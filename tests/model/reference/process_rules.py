"""Rules of the claim, and of the holder's writes: accepted while the claim holds, and refused for ever after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from peerd.domain.lifecycle import Status, TaskEvent
from peerd.domain.outcome import Canceled, Deferred, Failed, Outcome, Released, Snoozed
from tests.model.reference.state import ModelProcess, ModelState, ModelTask


def claim(
    state: ModelState,
    process: ModelProcess,
    queues: Sequence[str],
    *,
    token: int,
    limit: int,
    quarantined: bool,
    default_attempts: int,
    attempts_of: Mapping[tuple[str, str], int],
) -> list[tuple[int, int]]:
    taken = eligible(state, process, queues, quarantined=quarantined)[:limit]
    for task in taken:
        most = task.max_attempts or attempts_of.get((task.queue, task.name), default_attempts)
        state.hold(task, TaskEvent.CLAIM, process, claim_token=token, max_attempts=most)
    return [(task.id, task.lease) for task in taken]


def claimed_by_token(state: ModelState, process: ModelProcess, token: int) -> list[tuple[int, int]]:
    mine = [task for task in state.working() if task.process_id == process.id and task.claim_token == token]
    return [(task.id, task.lease) for task in sorted(mine, key=in_order)]


def eligible(state: ModelState, process: ModelProcess, queues: Sequence[str], *, quarantined: bool) -> list[ModelTask]:
    """What a process may take, best first. Tasks that have crashed a process are for those who run nothing else."""
    if not is_on_duty(state, process):
        return []
    open_queues = [queue for queue in queues if not is_paused(state, queue)]
    pending = [task for task in state.pending() if task.due_at <= state.now and not task.is_past_end(state.now)]
    here = [task for task in pending if task.queue in open_queues and task.node_id in (None, process.node_id)]
    return sorted((task for task in here if (task.crashes > 0) == quarantined), key=in_order)


def in_order(task: ModelTask) -> tuple[int, int, datetime, int]:
    return (-task.priority, task.failures, task.due_at, task.id)


def is_paused(state: ModelState, queue: str) -> bool:
    row = state.queues.get(queue)
    return row is not None and row.paused and (row.paused_until is None or row.paused_until > state.now)


def is_on_duty(state: ModelState, process: ModelProcess) -> bool:
    node = state.nodes[process.node]
    return node.incarnation == process.incarnation and not node.draining


Claim = tuple[int, int]


def touch(state: ModelState, claims: Iterable[Claim]) -> set[Claim]:
    lost = set()
    for task_id, lease in claims:
        task = state.held(task_id, lease)
        if task is None:
            lost.add((task_id, lease))
        else:
            state.write(task, checked_at=state.now)
    return lost


def report_progress(state: ModelState, reports: Mapping[Claim, tuple[float, str | None]]) -> set[Claim]:
    lost = touch(state, reports)
    for claim in reports.keys() - lost:
        fraction, note = reports[claim]
        state.tasks[claim[0]].progress = min(max(fraction, 0.0), 1.0)
        state.tasks[claim[0]].progress_note = note
    return lost


def complete(state: ModelState, process_id: int, results: Mapping[Claim, str | None]) -> set[Claim]:
    """Write successes; the refused ones. What this claim had completed before is accepted again."""
    refused = set()
    for (task_id, lease), result in results.items():
        task = state.held(task_id, lease)
        if task is not None:
            state.follow(task, TaskEvent.COMPLETE, result=result, error=None, progress=1.0)
        elif not _was_completed(state, process_id, task_id, lease):
            refused.add((task_id, lease))
    return refused


def record_outcome(state: ModelState, process_id: int, claim: Claim, outcome: Outcome) -> bool:
    task = state.held(*claim)
    if task is None:
        recorded = state.attempts.get(claim)
        label = {"dead": "failure"}.get(recorded.outcome, recorded.outcome) if recorded is not None else None
        return recorded is not None and recorded.process_id == process_id and label == _label(outcome)
    match outcome:
        case Failed():
            _fail(state, task, outcome)
        case Snoozed(after=seconds, reason=reason):
            state.record(task, "snoozed", counted=False, error=reason)
            state.follow(task, TaskEvent.SNOOZE, start_at=state.later(seconds))
        case Deferred(after=seconds, reason=reason):
            state.record(task, "unknown", counted=False, error=reason)
            state.follow(task, TaskEvent.DEFER, start_at=state.later(seconds), error=reason)
        case Canceled(reason=reason):
            state.record(task, "canceled", counted=True, error=reason)
            state.follow(task, TaskEvent.CANCEL, **_failed(task), error=reason)
        case _:
            assert isinstance(outcome, Released)
            release(state, task, outcome.reason)
    return True


def release(state: ModelState, task: ModelTask, reason: str) -> None:
    state.record(task, "released", counted=False, error=reason)
    state.follow(task, TaskEvent.RELEASE)


def is_last(task: ModelTask) -> bool:
    """Whether the attempt that runs is the last. A row that somebody made working by hand says of none; so it is."""
    return task.max_attempts is None or task.attempts + 1 >= task.max_attempts


def _fail(state: ModelState, task: ModelTask, failed: Failed) -> None:
    start_at = None if failed.retry_in is None or is_last(task) else state.later(failed.retry_in)
    is_over = start_at is None or (task.finish_at is not None and start_at >= task.finish_at)
    label = "dead" if is_over and failed.label == "failure" else failed.label
    state.record(task, label, counted=True, error=failed.error, traceback=failed.traceback)
    event, due = (TaskEvent.DIE, {}) if is_over else (TaskEvent.FAIL, {"start_at": start_at})
    state.follow(task, event, **_failed(task), error=failed.error, **due)


def _failed(task: ModelTask) -> dict[str, object]:
    return {"attempts": task.attempts + 1, "failures": task.failures + 1}


def _was_completed(state: ModelState, process_id: int, task_id: int, lease: int) -> bool:
    task = state.tasks.get(task_id)
    return task is not None and (task.status, task.lease, task.process_id) == (Status.DONE, lease, process_id)


def _label(outcome: Outcome) -> str:
    labels = {Snoozed: "snoozed", Deferred: "unknown", Canceled: "canceled", Released: "released"}
    return outcome.label if isinstance(outcome, Failed) else labels[type(outcome)]
