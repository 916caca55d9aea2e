"""Rules of the chores: to which rows each may come, and what it does to one."""

from __future__ import annotations

from datetime import datetime

from peerd.domain.lifecycle import Status, TaskEvent
from tests.model.reference.state import ModelKey, ModelState, ModelTask, later


def due_tasks(state: ModelState, status: Status, now: datetime) -> list[ModelTask]:
    return [task for task in state.tasks.values() if task.status is status and task.due_at <= now]


def stage(state: ModelState, task: ModelTask, now: datetime) -> None:
    state.follow(task, TaskEvent.STAGE, now, start_at=None if task.ttr is not None else task.start_at)


def pending_before_start(state: ModelState, now: datetime) -> list[ModelTask]:
    return [task for task in state.pending() if task.start_at is not None and task.start_at > now]


def postpone(state: ModelState, task: ModelTask, now: datetime) -> None:
    state.follow(task, TaskEvent.POSTPONE, now)


def past_finish_at(state: ModelState, now: datetime) -> list[ModelTask]:
    """Pending tasks whose end has come before they were started."""
    return [task for task in state.pending() if task.is_past_end(now)]


def remove(state: ModelState, task: ModelTask, now: datetime) -> None:
    state.remove(task)


def purgeable(state: ModelState, status: Status, age: float, now: datetime) -> list[ModelTask]:
    """Tasks that ended so long ago; one that somebody wrote as ended, without a time, counts from its last write."""
    ended = (task for task in state.tasks.values() if task.status is status)
    return [task for task in ended if (task.finished_at or task.updated_at) <= later(now, -age)]


def expired_keys(state: ModelState, now: datetime) -> list[ModelKey]:
    return [key for key in state.keys.values() if key.expires_at is not None and key.expires_at <= now]


def pinned_to_silent_node(state: ModelState, after: float, now: datetime) -> list[ModelTask]:
    silent = {node.id for node in state.nodes.values() if not node.active and node.checked_at < later(now, -after)}
    return [task for task in state.pending() if task.node_id in silent]


def unpin(state: ModelState, task: ModelTask, now: datetime) -> None:
    state.write(task, now, node_id=None)


def fail_pinned(state: ModelState, task: ModelTask, now: datetime) -> None:
    """It is dead. The row that says so has a lease of its own, for nobody held the task."""
    task.lease += 1
    holder = (task.worker_node_id, task.process_id, task.worker_started_at)
    task.worker_node_id = task.process_id = task.worker_started_at = None
    state.record(task, now, "dead", counted=False, error="silent")
    task.worker_node_id, task.process_id, task.worker_started_at = holder
    state.follow(task, TaskEvent.ABANDON, now, error="silent")
