"""Rules of queue clients: what a reservation writes, how it ends, and what is kicked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peerd.domain.lifecycle import Status, TaskEvent, after, sources
from peerd.store.jobs.holding import Bury, Release
from tests.model.reference.process_rules import Claim, eligible, in_order, is_on_duty
from tests.model.reference.state import ModelProcess, ModelState, ModelTask

DELETABLE = tuple(
    status for status in Status if status not in (Status.WORKING, Status.DONE, Status.DEAD, Status.CANCELED)
)


def reserve(
    state: ModelState, process: ModelProcess, queues: Sequence[str], limit: int, default_ttr: int
) -> list[Claim]:
    both = [task for quarantined in (False, True) for task in eligible(state, process, queues, quarantined=quarantined)]
    taken = sorted(both, key=in_order)[:limit]
    for task in taken:
        _hold(state, task, TaskEvent.CLAIM, process, default_ttr)
    return [(task.id, task.lease) for task in taken]


def take(state: ModelState, process: ModelProcess, job_id: int, default_ttr: int) -> Claim | None:
    task = state.tasks.get(job_id)
    if task is None or task.status not in sources(TaskEvent.TAKE) or not is_on_duty(state, process):
        return None
    if task.node_id not in (None, process.node_id) or task.is_past_end(state.now):
        return None
    _hold(state, task, TaskEvent.TAKE, process, default_ttr)
    return task.id, task.lease


def delete(state: ModelState, process_id: int, claims: Iterable[Claim]) -> set[Claim]:
    held = _all_held(state, process_id, claims)
    for task in held.values():
        state.remove(task)
    return set(held)


def release(state: ModelState, process_id: int, releases: Iterable[Release]) -> set[Claim]:
    wanted = {(one.claim.id, one.claim.lease): one for one in releases}
    held = _all_held(state, process_id, wanted)
    for claim, task in held.items():
        one = wanted[claim]
        changes = _changes(task, one) | ({} if one.delay is None else {"delay": one.delay})
        event = TaskEvent.SNOOZE if one.delay else TaskEvent.RELEASE
        state.follow(task, event, start_at=state.later(one.delay) if one.delay else None, **changes)
    return set(held)


def bury(state: ModelState, process_id: int, one: Bury) -> set[Claim]:
    """Bury a held job."""
    held = _all_held(state, process_id, [(one.claim.id, one.claim.lease)])
    for task in held.values():
        changes = _changes(task, one) | {"buries": _raised(task.buries), "buried_order": one.order}
        state.follow(task, TaskEvent.BURY, start_at=None, **changes)
    return set(held)


def touch(state: ModelState, process_id: int, claims: Iterable[Claim]) -> set[Claim]:
    held = _all_held(state, process_id, claims)
    for task in held.values():
        state.write(task, checked_at=state.now, deadline_at=state.later(task.ttr or 0))
    return set(held)


def kick(state: ModelState, queue: str, bound: int) -> int:
    """Kick the buried jobs of a tube, those without an order first; if there are none, the delayed ones."""
    here = [task for task in state.tasks.values() if task.queue == queue]
    aside = [task for task in here if task.status is Status.BURIED]
    aside.sort(key=lambda task: (task.buried_order is not None, task.buried_order or 0, task.due_at, task.id))
    if not aside:
        aside = [task for task in here if task.status in (Status.SCHEDULED, Status.FAILURE)]
        aside.sort(key=lambda task: (task.due_at, task.id))
    for task in aside[:bound]:
        state.kick(task)
    return len(aside[:bound])


def kick_job(state: ModelState, job_id: int) -> str | None:
    task = state.tasks.get(job_id)
    if task is None or task.status not in sources(TaskEvent.KICK):
        return None
    state.kick(task)
    return task.queue


def delete_free(state: ModelState, job_id: int) -> set[int]:
    task = state.tasks.get(job_id)
    if task is None or task.status not in DELETABLE:
        return set()
    after(task.status, TaskEvent.DELETE)
    state.remove(task)
    return {job_id}


def _hold(state: ModelState, task: ModelTask, event: TaskEvent, process: ModelProcess, default_ttr: int) -> None:
    ttr = default_ttr if task.ttr is None else task.ttr
    changes = {
        "ttr": ttr,
        "deadline_at": state.later(ttr),
        "reserves": _raised(task.reserves),
        "buried_order": None,
    }
    state.hold(task, event, process, claim_token=None, **changes)  # a new token, which no claim knows


def _all_held(state: ModelState, process_id: int, claims: Iterable[Claim]) -> dict[Claim, ModelTask]:
    held = ((claim, state.held(*claim)) for claim in claims)
    return {claim: task for claim, task in held if task is not None and task.process_id == process_id}


def _changes(task: ModelTask, one: Release | Bury) -> dict[str, object]:
    changes: dict[str, object] = {} if one.counts is None else {one.counts: _raised(getattr(task, one.counts))}
    return changes if one.priority is None else changes | {"priority": one.priority}


def _raised(count: int | None) -> int:
    return (count or 0) + 1
