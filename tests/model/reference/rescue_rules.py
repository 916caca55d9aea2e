"""Rules of taking tasks back from the dead: the attempt counts, and the next is due at once."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from peerd.domain.lifecycle import TaskEvent
from tests.model.reference.claim_write_rules import Claim, is_last, release
from tests.model.reference.state import ModelState, ModelTask, later


def untouched_tasks(state: ModelState, max_update: float, now: datetime) -> list[ModelTask]:
    """Tasks that nobody has touched for so long, and whose process is silent for as long, or has ended.

    A row made working by hand counts from when it was written.
    """
    before = later(now, -max_update)
    living = {process_id for process_id, beat in state.beats.items() if beat >= before}
    untouched = [task for task in state.working() if (task.checked_at or task.updated_at) < before]
    return [task for task in untouched if task.process_id not in living]


def claimed_by(state: ModelState, process_id: int) -> list[ModelTask]:
    return [task for task in state.working() if task.process_id == process_id]


def crash(
    state: ModelState, task: ModelTask, label: str, cause: str, now: datetime, *, crashes: int = 0
) -> tuple[TaskEvent, str]:
    if task.deadline_at is not None:
        return release_with_label(state, task, cause, now)
    event = TaskEvent.DIE if is_last(task) else TaskEvent.RESCUE
    state.record(task, now, label, counted=True, error=cause, cause=cause)
    due: dict[str, object] = {"start_at": now} if event is TaskEvent.RESCUE else {}
    counted = {"attempts": task.attempts + 1, "crashes": task.crashes + crashes, "error": cause}
    state.follow(task, event, now, **due, **counted)
    return event, label


def release_with_label(state: ModelState, task: ModelTask, cause: str, now: datetime) -> tuple[TaskEvent, str]:
    """Release what a holder has that was asked to end: it does not count; a reservation was not even an attempt."""
    if task.deadline_at is not None:
        state.follow(task, TaskEvent.RELEASE, now, start_at=None)
        return TaskEvent.RELEASE, "reservation"
    release(state, task, cause, now)
    return TaskEvent.RELEASE, "released"


def release_unknown_claims(
    state: ModelState, process_id: int, claims: Collection[Claim], cause: str, now: datetime
) -> dict[int, tuple[TaskEvent, str]]:
    mine = [task for task in claimed_by(state, process_id) if (task.id, task.lease) in claims]
    return {task.id: release_with_label(state, task, cause, now) for task in mine}
