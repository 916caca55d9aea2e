"""Rules of the claim: who may take what, in which order, and what the claim writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from peerd.domain.lifecycle import TaskEvent
from tests.model.reference.state import ModelProcess, ModelState, ModelTask, later


def claim(
    state: ModelState,
    process: ModelProcess,
    queues: Sequence[str],
    now: datetime,
    *,
    token: int,
    limit: int,
    quarantined: bool,
    default_attempts: int,
    attempts_of: Mapping[tuple[str, str], int],
) -> list[tuple[int, int]]:
    taken = eligible(state, process, queues, now, quarantined=quarantined)[:limit]
    for task in taken:
        most = task.max_attempts or attempts_of.get((task.queue, task.name), default_attempts)
        state.hold(task, TaskEvent.CLAIM, process, now, claim_token=token, max_attempts=most)
    return [(task.id, task.lease) for task in taken]


def claimed_by_token(state: ModelState, process: ModelProcess, token: int) -> list[tuple[int, int]]:
    mine = [task for task in state.working() if task.process_id == process.id and task.claim_token == token]
    return [(task.id, task.lease) for task in sorted(mine, key=in_order)]


def should_empty_for_quarantined(
    state: ModelState, process: ModelProcess, queues: Sequence[str], patience: float, now: datetime
) -> bool:
    """Whether it is this process's turn to run empty: a task that must run alone has waited, the longer the later."""
    waiting = eligible(state, process, queues, now, quarantined=True)
    for node_id in (None, process.node_id):
        mine = [task for task in waiting if task.node_id == node_id][:64]
        able = [one for one in state.processes.values() if state.nodes[one.node].active and is_on_duty(state, one)]
        among = [one.id for one in able if node_id in (None, one.node_id)]
        before = sum(one < process.id for one in among)
        long = any(task.due_at < later(now, -patience * 2**before) for task in mine)
        if long and before < len(among) / 2:
            return True
    return False


def eligible(
    state: ModelState, process: ModelProcess, queues: Sequence[str], now: datetime, *, quarantined: bool
) -> list[ModelTask]:
    """What a process may take, best first. Tasks that have crashed a process are for those who run nothing else."""
    if not is_on_duty(state, process):
        return []
    open_queues = [queue for queue in queues if not is_paused(state, queue, now)]
    pending = [task for task in state.pending() if task.due_at <= now and not task.is_past_end(now)]
    here = [task for task in pending if task.queue in open_queues and task.node_id in (None, process.node_id)]
    return sorted((task for task in here if (task.crashes > 0) == quarantined), key=in_order)


def in_order(task: ModelTask) -> tuple[int, int, datetime, int]:
    return (-task.priority, task.attempts, task.due_at, task.id)


def is_paused(state: ModelState, queue: str, now: datetime) -> bool:
    row = state.queues.get(queue)
    return row is not None and row.paused and (row.paused_until is None or row.paused_until > now)


def is_on_duty(state: ModelState, process: ModelProcess) -> bool:
    node = state.nodes[process.node]
    return node.incarnation == process.incarnation and not node.draining
