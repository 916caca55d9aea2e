"""Rules of queue clients: what a reservation writes, how it ends, and what is kicked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from peerd.domain.lifecycle import Status, TaskEvent, after, sources
from peerd.store.jobs import Bury, Release
from tests.model.reference.claim_rules import eligible, in_order, is_on_duty
from tests.model.reference.claim_write_rules import Claim
from tests.model.reference.state import ModelProcess, ModelState, ModelTask, later
from tests.model.reference.task_action_rules import finish_at_ahead

DELETABLE = tuple(
    status for status in Status if status not in (Status.WORKING, Status.DONE, Status.DEAD, Status.CANCELED)
)


def reserve(
    state: ModelState, process: ModelProcess, queues: Sequence[str], limit: int, default_ttr: int, now: datetime
) -> list[Claim]:
    both = [
        task for quarantined in (False, True) for task in eligible(state, process, queues, now, quarantined=quarantined)
    ]
    taken = sorted(both, key=in_order)[:limit]
    for task in taken:
        _hold(state, task, TaskEvent.CLAIM, process, default_ttr, now)
    return [(task.id, task.lease) for task in taken]


def take(state: ModelState, process: ModelProcess, job_id: int, default_ttr: int, now: datetime) -> Claim | None:
    task = state.tasks.get(job_id)
    if task is None or task.status not in sources(TaskEvent.TAKE) or not is_on_duty(state, process):
        return None
    if task.node_id not in (None, process.node_id) or (task.finish_at is not None and task.finish_at <= now):
        return None
    _hold(state, task, TaskEvent.TAKE, process, default_ttr, now)
    return task.id, task.lease


def delete(state: ModelState, process_id: int, claims: Iterable[Claim]) -> set[Claim]:
    held = [(task, claim) for claim in claims if (task := _held(state, process_id, claim)) is not None]
    for task, _ in held:
        state.remove(task)
    return {claim for _, claim in held}


def release(state: ModelState, process_id: int, releases: Iterable[Release], now: datetime) -> set[Claim]:
    held = set()
    for one in releases:
        task = _held(state, process_id, (one.claim.id, one.claim.lease))
        if task is None:
            continue
        held.add((task.id, task.lease))
        event = TaskEvent.SNOOZE if one.delay else TaskEvent.RELEASE
        changes = _changes(task, one.priority, one.counts)
        if one.delay is not None:
            changes["delay"] = one.delay
        state.follow(task, event, now, start_at=later(now, one.delay) if one.delay else None, **changes)
    return held


def bury(state: ModelState, process_id: int, one: Bury, now: datetime) -> set[Claim]:
    """Bury a held job."""
    task = _held(state, process_id, (one.claim.id, one.claim.lease))
    if task is None:
        return set()
    changes = _changes(task, one.priority, one.counts) | {"buries": _raised(task.buries), "buried_order": one.order}
    state.follow(task, TaskEvent.BURY, now, start_at=None, **changes)
    return {(task.id, task.lease)}


def touch(state: ModelState, process_id: int, claims: Iterable[Claim], now: datetime) -> set[Claim]:
    held = [(task, claim) for claim in claims if (task := _held(state, process_id, claim)) is not None]
    for task, _ in held:
        assert task.ttr is not None
        state.write(task, now, checked_at=now, deadline_at=later(now, task.ttr))
    return {claim for _, claim in held}


def kick(state: ModelState, queue: str, bound: int, now: datetime) -> int:
    """Kick the buried jobs of a tube, those without an order first; if there are none, the delayed ones."""
    here = [task for task in state.tasks.values() if task.queue == queue]
    aside = [task for task in here if task.status is Status.BURIED]
    aside.sort(key=lambda task: (task.buried_order is not None, task.buried_order or 0, task.due_at, task.id))
    if not aside:
        aside = [task for task in here if task.status in (Status.SCHEDULED, Status.FAILURE)]
        aside.sort(key=lambda task: (task.due_at, task.id))
    for task in aside[:bound]:
        _kick(state, task, now)
    return len(aside[:bound])


def kick_job(state: ModelState, job_id: int, now: datetime) -> str | None:
    task = state.tasks.get(job_id)
    if task is None or task.status not in sources(TaskEvent.KICK):
        return None
    _kick(state, task, now)
    return task.queue


def delete_free(state: ModelState, job_id: int) -> set[int]:
    task = state.tasks.get(job_id)
    if task is None or task.status not in DELETABLE:
        return set()
    after(task.status, TaskEvent.DELETE)
    state.remove(task)
    return {job_id}


def _hold(
    state: ModelState, task: ModelTask, event: TaskEvent, process: ModelProcess, default_ttr: int, now: datetime
) -> None:
    ttr = default_ttr if task.ttr is None else task.ttr
    state.follow(
        task,
        event,
        now,
        lease=task.lease + 1,
        worker_node_id=process.node_id,
        process_id=process.id,
        worker_started_at=now,
        checked_at=now,
        progress=None,
        progress_note=None,
        claim_token=None,  # a new one, which no claim knows
        ttr=ttr,
        deadline_at=later(now, ttr),
        reserves=_raised(task.reserves),
        buried_order=None,
    )


def _held(state: ModelState, process_id: int, claim: Claim) -> ModelTask | None:
    task = state.held(*claim)
    return task if task is not None and task.process_id == process_id else None


def _changes(task: ModelTask, priority: int | None, counts: str | None) -> dict[str, object]:
    changes: dict[str, object] = {} if counts is None else {counts: _raised(getattr(task, counts))}
    return changes if priority is None else changes | {"priority": priority}


def _kick(state: ModelState, task: ModelTask, now: datetime) -> None:
    kicks, finish_at = _raised(task.kicks), finish_at_ahead(task, now)
    state.follow(task, TaskEvent.KICK, now, start_at=None, finish_at=finish_at, buried_order=None, kicks=kicks)


def _raised(count: int | None) -> int:
    return (count or 0) + 1
