"""Rules of enqueuing and of unique keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from peerd.domain.errors import NodeNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from tests.model.reference.state import ModelKey, ModelState, ModelTask, later

COPIED = (
    "queue", "name", "body", "body_bytes", "priority", "max_attempts", "timeout", "unique_key", "trace_context", "ttr",
    "delay",
)  # fmt: skip


def enqueue(state: ModelState, new: Sequence[NewTask], ids: Sequence[int], now: datetime) -> list[tuple[int, bool]]:
    """Accept tasks. Their ids are the database's to give: those of tasks that are new here are taken from ``ids``."""
    for task in new:
        if task.node is not None and task.node not in state.nodes:
            raise NodeNotFound(task.node, sorted(state.nodes))
    answers = {}
    for place in sorted(range(len(new)), key=lambda place: (new[place].queue, new[place].unique_key or "", place)):
        task = new[place]
        holder = None if task.unique_key is None else task_with_key(state, task.queue, task.unique_key, now)
        if holder is None:
            state.tasks[ids[place]] = _row(state, task, ids[place], now)
            if task.unique_key is not None:
                set_key(state, task.queue, task.unique_key, ids[place], task.unique_for, now)
        answers[place] = (ids[place], True) if holder is None else (holder, False)
    return [answers[place] for place in range(len(new))]


def task_with_key(state: ModelState, queue: str, unique_key: str, now: datetime) -> int | None:
    """Which task has a key, if it holds: for ever, until its time is over, or while its task has not ended."""
    key = state.keys.get((queue, unique_key))
    if key is None:
        return None
    task = state.tasks.get(key.task_id)
    holds = {
        "forever": True,
        "period": key.expires_at is not None and key.expires_at > now,
        "unfinished": task is not None and not task.finished,
    }
    return key.task_id if holds[key.scope] else None


def set_key(state: ModelState, queue: str, unique_key: str, task_id: int, scope: str | float, now: datetime) -> None:
    named, until = (scope, None) if isinstance(scope, str) else ("period", later(now, scope))
    state.keys[queue, unique_key] = ModelKey(
        queue=queue, unique_key=unique_key, task_id=task_id, scope=named, expires_at=until, created_at=now
    )


def _row(state: ModelState, new: NewTask, task_id: int, now: datetime) -> ModelTask:
    start_at = new.start_at if new.start_in is None else later(now, new.start_in)
    finish_at = new.finish_at if new.finish_in is None else later(now, new.finish_in)
    return ModelTask(
        id=task_id,
        status=Status.SCHEDULED if start_at is not None and start_at > now else Status.PENDING,
        node_id=None if new.node is None else state.nodes[new.node].id,
        start_at=start_at,
        finish_at=finish_at,
        created_at=now,
        updated_at=now,
        **{column: getattr(new, column) for column in COPIED},
    )
