"""Rules of what people do: each takes effect at once, and a running task is lost to its holder."""

from __future__ import annotations

from datetime import datetime

from peerd.domain.errors import NodeNotFound, TaskNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import Status, TaskEvent, after
from tests.model.reference.enqueue_rules import set_key, task_with_key
from tests.model.reference.state import ModelState, ModelTask, later


def cancel(state: ModelState, now: datetime, task_id: int, reason: str) -> None:
    task = _allowed(state, task_id, TaskEvent.CANCEL)
    _revoke_claim(state, task, "withdrawn", now)
    state.follow(task, TaskEvent.CANCEL, now, lease=task.lease + 1, error=reason)


def retry(state: ModelState, now: datetime, task_id: int) -> None:
    task = _allowed(state, task_id, TaskEvent.RETRY)
    if task.unique_key is not None:
        holder = task_with_key(state, task.queue, task.unique_key, now)
        if holder not in (None, task.id):
            assert holder is not None
            raise UniqueKeyTaken(task.id, task.unique_key, holder)
        if holder is None:
            set_key(state, task.queue, task.unique_key, task.id, "unfinished", now)
    _revoke_claim(state, task, "retried", now)
    afresh: dict[str, object] = dict.fromkeys(("start_at", "finished_at", "result", "progress", "progress_note"))
    afresh |= {"lease": task.lease + 1, "attempts": 0, "crashes": 0, "finish_at": task.finish_at_ahead(now)}
    state.follow(task, TaskEvent.RETRY, now, **afresh)


def move(state: ModelState, now: datetime, task_id: int, node: str | None) -> None:
    if node is not None and node not in state.nodes:
        raise NodeNotFound(node, sorted(state.nodes))
    task = _allowed(state, task_id, TaskEvent.MOVE)
    lease = _revoke_claim(state, task, "moved", now)
    state.follow(task, TaskEvent.MOVE, now, lease=lease, node_id=None if node is None else state.nodes[node].id)


def bury(state: ModelState, now: datetime, task_id: int, order: int) -> None:
    task = _allowed(state, task_id, TaskEvent.BURY)
    lease = _revoke_claim(state, task, "buried", now)
    state.follow(task, TaskEvent.BURY, now, lease=lease, buries=(task.buries or 0) + 1, buried_order=order)


def snooze(state: ModelState, now: datetime, task_id: int, seconds: float) -> None:
    task = _allowed(state, task_id, TaskEvent.RESCHEDULE)
    lease = _revoke_claim(state, task, "snoozed", now)
    state.follow(task, TaskEvent.RESCHEDULE, now, lease=lease, start_at=later(now, seconds))


def kick(state: ModelState, now: datetime, task_id: int) -> None:
    task = _allowed(state, task_id, TaskEvent.KICK)
    state.kick(task, now)


def delete(state: ModelState, now: datetime, task_id: int) -> None:
    state.remove(_allowed(state, task_id, TaskEvent.DELETE))


def move_by_hand(state: ModelState, task_id: int, node_id: int | None, now: datetime, *, leaves_deadline: bool) -> None:
    task = state.tasks[task_id]
    if not leaves_deadline:
        task.deadline_at = None
    task.node_id, task.status, task.lease = node_id, Status.PENDING, task.lease + 1
    if state.hand_writes_renew:
        task.updated_at = now


def _allowed(state: ModelState, task_id: int, event: TaskEvent) -> ModelTask:
    if task_id not in state.tasks:
        raise TaskNotFound(task_id)
    task = state.tasks[task_id]
    after(task.status, event)
    return task


def _revoke_claim(state: ModelState, task: ModelTask, label: str, now: datetime) -> int:
    """The attempt that ends here is on record; it does not count. A reservation is no attempt. The lease after it."""
    if task.status is Status.WORKING and task.deadline_at is None:
        state.record(task, now, label, counted=False, error="")
    return task.lease + 1 if task.status is Status.WORKING else task.lease
