"""Rules of enqueuing and unique keys, and of what people do: a running task is lost to its holder."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.domain.errors import NodeNotFound, TaskNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import Status, TaskEvent, after
from peerd.domain.task import NewTask
from tests.model.reference.state import ModelKey, ModelState, ModelTask

COPIED = (
    "queue", "name", "body", "body_bytes", "priority", "max_attempts", "timeout", "unique_key", "trace_context", "ttr",
    "delay",
)  # fmt: skip


def enqueue(state: ModelState, new: Sequence[NewTask], ids: Sequence[int]) -> list[tuple[int, bool]]:
    """Accept tasks. Their ids are the database's to give: those of tasks that are new here are taken from ``ids``."""
    for task in new:
        if task.node is not None and task.node not in state.nodes:
            raise NodeNotFound(task.node, sorted(state.nodes))
    answers = {}
    for place in sorted(range(len(new)), key=lambda place: (new[place].queue, new[place].unique_key or "", place)):
        task = new[place]
        holder = None if task.unique_key is None else task_with_key(state, task.queue, task.unique_key)
        if holder is None:
            state.tasks[ids[place]] = _row(state, task, ids[place])
            if task.unique_key is not None:
                set_key(state, task.queue, task.unique_key, ids[place], task.unique_for)
        answers[place] = (ids[place], True) if holder is None else (holder, False)
    return [answers[place] for place in range(len(new))]


def task_with_key(state: ModelState, queue: str, unique_key: str) -> int | None:
    """Which task has a key, if it holds: for ever, until its time is over, or while its task has not ended."""
    key = state.keys.get((queue, unique_key))
    if key is None:
        return None
    task = state.tasks.get(key.task_id)
    holds = {
        "forever": True,
        "period": key.expires_at is not None and key.expires_at > state.now,
        "unfinished": task is not None and not task.finished,
    }
    return key.task_id if holds[key.scope] else None


def set_key(state: ModelState, queue: str, unique_key: str, task_id: int, scope: str | float) -> None:
    named, until = (scope, None) if isinstance(scope, str) else ("period", state.later(scope))
    state.keys[queue, unique_key] = ModelKey(
        queue=queue, unique_key=unique_key, task_id=task_id, scope=named, expires_at=until, created_at=state.now
    )


def _row(state: ModelState, new: NewTask, task_id: int) -> ModelTask:
    start_at = new.start_at if new.start_in is None else state.later(new.start_in)
    finish_at = new.finish_at if new.finish_in is None else state.later(new.finish_in)
    return ModelTask(
        id=task_id,
        status=Status.SCHEDULED if start_at is not None and start_at > state.now else Status.PENDING,
        node_id=None if new.node is None else state.nodes[new.node].id,
        start_at=start_at,
        finish_at=finish_at,
        created_at=state.now,
        updated_at=state.now,
        **{column: getattr(new, column) for column in COPIED},
    )


def cancel(state: ModelState, task_id: int, reason: str) -> None:
    task = _allowed(state, task_id, TaskEvent.CANCEL)
    _revoke_claim(state, task, "withdrawn")
    state.follow(task, TaskEvent.CANCEL, lease=task.lease + 1, error=reason)


def retry(state: ModelState, task_id: int) -> None:
    task = _allowed(state, task_id, TaskEvent.RETRY)
    if task.unique_key is not None:
        holder = task_with_key(state, task.queue, task.unique_key)
        if holder not in (None, task.id):
            assert holder is not None
            raise UniqueKeyTaken(task.id, task.unique_key, holder)
        if holder is None:
            set_key(state, task.queue, task.unique_key, task.id, "unfinished")
    _revoke_claim(state, task, "retried")
    afresh: dict[str, object] = dict.fromkeys(("start_at", "finished_at", "result", "progress", "progress_note"))
    afresh |= {
        "lease": task.lease + 1,
        "attempts": 0,
        "failures": 0,
        "crashes": 0,
        "finish_at": task.finish_at_ahead(state.now),
    }
    state.follow(task, TaskEvent.RETRY, **afresh)


def move(state: ModelState, task_id: int, node: str | None) -> None:
    task = _allowed(state, task_id, TaskEvent.MOVE)
    if node is not None and node not in state.nodes:
        raise NodeNotFound(node, sorted(state.nodes))
    lease = _revoke_claim(state, task, "moved")
    state.follow(task, TaskEvent.MOVE, lease=lease, node_id=None if node is None else state.nodes[node].id)


def bury(state: ModelState, task_id: int, order: int) -> None:
    task = _allowed(state, task_id, TaskEvent.BURY)
    lease = _revoke_claim(state, task, "buried")
    state.follow(task, TaskEvent.BURY, lease=lease, buries=(task.buries or 0) + 1, buried_order=order)


def snooze(state: ModelState, task_id: int, seconds: float) -> None:
    task = _allowed(state, task_id, TaskEvent.RESCHEDULE)
    lease = _revoke_claim(state, task, "snoozed")
    state.follow(task, TaskEvent.RESCHEDULE, lease=lease, start_at=state.later(seconds))


def kick(state: ModelState, task_id: int) -> None:
    task = _allowed(state, task_id, TaskEvent.KICK)
    state.kick(task)


def delete(state: ModelState, task_id: int) -> None:
    state.remove(_allowed(state, task_id, TaskEvent.DELETE))


def move_by_hand(state: ModelState, task_id: int, node_id: int | None, *, leaves_deadline: bool) -> None:
    task = state.tasks[task_id]
    if not leaves_deadline:
        task.deadline_at = None
    task.node_id, task.status, task.lease = node_id, Status.PENDING, task.lease + 1
    if state.hand_writes_renew:
        task.updated_at = state.now


def _allowed(state: ModelState, task_id: int, event: TaskEvent) -> ModelTask:
    if task_id not in state.tasks:
        raise TaskNotFound(task_id)
    task = state.tasks[task_id]
    after(task.status, event)
    return task


def _revoke_claim(state: ModelState, task: ModelTask, label: str) -> int:
    """The attempt that ends here is on record; it does not count. A reservation is no attempt. The lease after it."""
    if task.status is Status.WORKING and task.deadline_at is None:
        state.record(task, label, counted=False, error="")
    return task.lease + 1 if task.status is Status.WORKING else task.lease
