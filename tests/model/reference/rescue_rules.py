"""Rules of taking tasks back from the dead: the attempt counts, and the next is due at once."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from peerd.domain.lifecycle import Event
from tests.model.reference.claim_write_rules import Claim, is_last, release
from tests.model.reference.state import State, TaskRow, later


def frozen(state: State, max_update: float, now: datetime) -> list[TaskRow]:
    """Tasks that nobody has touched for so long, and whose process is silent for as long, or has ended.

    A row made working by hand counts from when it was written.
    """
    before = later(now, -max_update)
    living = {process_id for process_id, beat in state.beats.items() if beat >= before}
    untouched = [task for task in state.working() if (task.checked_at or task.updated_at) < before]
    return [task for task in untouched if task.process_id not in living]


def held_by(state: State, process_id: int) -> list[TaskRow]:
    """What a process holds."""
    return [task for task in state.working() if task.process_id == process_id]


def crash(state: State, task: TaskRow, label: str, cause: str, now: datetime, *, crashes: int = 0) -> tuple[Event, str]:
    """Take a task back whose holder is dead; what became of it, and how its attempt is called."""
    event = Event.DIE if is_last(task) else Event.RESCUE
    state.record(task, now, label, counted=True, error=cause, cause=cause)
    due: dict[str, object] = {"start_at": now} if event is Event.RESCUE else {}
    counted = {"attempts": task.attempts + 1, "crashes": task.crashes + crashes, "error": cause}
    state.follow(task, event, now, **due, **counted)
    return event, label


def give_back(state: State, task: TaskRow, cause: str, now: datetime) -> tuple[Event, str]:
    """Take a task back whose holder was told to end; it costs nothing."""
    release(state, task, cause, now)
    return Event.RELEASE, "released"


def release_held(
    state: State, process_id: int, claims: Collection[Claim], cause: str, now: datetime
) -> dict[int, tuple[Event, str]]:
    """Give claims back that a process has and does not know of."""
    mine = [task for task in held_by(state, process_id) if (task.id, task.lease) in claims]
    return {task.id: give_back(state, task, cause, now) for task in mine}
