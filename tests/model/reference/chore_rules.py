"""Rules of the chores: which tasks are taken back from the dead, which rows are swept, and what becomes of one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from peerd.domain.lifecycle import Status, TaskEvent
from tests.model.reference.process_rules import Claim, is_last, release
from tests.model.reference.state import ModelKey, ModelState, ModelTask


def untouched_tasks(state: ModelState, max_update: float, as_of: datetime | None) -> list[ModelTask]:
    """Tasks that nobody has touched for so long, and whose process is silent for as long, or has ended.

    A row made working by hand counts from when it was written.
    """
    before = (as_of or state.now) - timedelta(seconds=max_update)
    living = {process_id for process_id, beat in state.beats.items() if beat >= before}
    untouched = [task for task in state.working() if (task.checked_at or task.updated_at) < before]
    return [task for task in untouched if task.process_id not in living]


def claimed_by(state: ModelState, process_id: int) -> list[ModelTask]:
    return [task for task in state.working() if task.process_id == process_id]


def crash(state: ModelState, task: ModelTask, label: str, cause: str, *, crashes: int = 0) -> tuple[TaskEvent, str]:
    if task.deadline_at is not None:
        return release_with_label(state, task, cause)
    event = TaskEvent.DIE if is_last(task) else TaskEvent.RESCUE
    state.record(task, label, counted=True, error=cause, cause=cause)
    failures = task.failures + (crashes > 0 and task.crashes > 0)  # it had crashed before: so it ran alone
    counted = {"attempts": task.attempts + 1, "failures": failures, "crashes": task.crashes + crashes, "error": cause}
    state.follow(task, event, **counted)
    return event, label


def release_with_label(state: ModelState, task: ModelTask, cause: str) -> tuple[TaskEvent, str]:
    """Release what a holder has that was asked to end: it does not count; a reservation was not even an attempt."""
    if task.deadline_at is not None:
        state.follow(task, TaskEvent.RELEASE, start_at=None)
        return TaskEvent.RELEASE, "reservation"
    release(state, task, cause)
    return TaskEvent.RELEASE, "released"


def release_unknown_claims(
    state: ModelState, process_id: int, claims: Collection[Claim], cause: str
) -> dict[int, tuple[TaskEvent, str]]:
    mine = [task for task in claimed_by(state, process_id) if (task.id, task.lease) in claims]
    return {task.id: release_with_label(state, task, cause) for task in mine}


def due_tasks(state: ModelState, status: Status) -> list[ModelTask]:
    return [task for task in state.tasks.values() if task.status is status and task.due_at <= state.now]


def stage(state: ModelState, task: ModelTask) -> None:
    state.follow(task, TaskEvent.STAGE, start_at=None if task.ttr is not None else task.start_at)


def pending_before_start(state: ModelState) -> list[ModelTask]:
    return [task for task in state.pending() if task.start_at is not None and task.start_at > state.now]


def postpone(state: ModelState, task: ModelTask) -> None:
    state.follow(task, TaskEvent.POSTPONE)


def past_finish_at(state: ModelState) -> list[ModelTask]:
    """Pending tasks whose end has come before they were started."""
    return [task for task in state.pending() if task.is_past_end(state.now)]


def remove(state: ModelState, task: ModelTask) -> None:
    state.remove(task)


def purgeable(state: ModelState, status: Status, age: float) -> list[ModelTask]:
    """Tasks that ended so long ago; one that somebody wrote as ended, without a time, counts from its last write."""
    ended = (task for task in state.tasks.values() if task.status is status)
    return [task for task in ended if (task.finished_at or task.updated_at) <= state.later(-age)]


def expired_keys(state: ModelState) -> list[ModelKey]:
    return [key for key in state.keys.values() if key.expires_at is not None and key.expires_at <= state.now]


def pinned_to_silent_node(state: ModelState, after: float) -> list[ModelTask]:
    silent = {node.id for node in state.nodes.values() if not node.active and node.checked_at < state.later(-after)}
    return [task for task in state.pending() if task.node_id in silent]


def unpin(state: ModelState, task: ModelTask) -> None:
    state.write(task, node_id=None)


def fail_pinned(state: ModelState, task: ModelTask) -> None:
    """It is dead. The row that says so has a lease of its own, for nobody held the task."""
    task.lease += 1
    holder = (task.worker_node_id, task.process_id, task.worker_started_at)
    task.worker_node_id = task.process_id = task.worker_started_at = None
    state.record(task, "dead", counted=False, error="silent")
    task.worker_node_id, task.process_id, task.worker_started_at = holder
    state.follow(task, TaskEvent.ABANDON, error="silent")
