"""Taking tasks back from holders that are dead: of a process whose exit was seen, or that nothing has touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import TaskEvent, sources
from peerd.domain.outcome import Released, TaskTransition, transition_after, transition_after_crash
from peerd.domain.task import Task
from peerd.runtime.observability.events import Event, ReservationsReleased, TasksRescued
from peerd.store.attempt_series import LostAttempt, count_lost_attempts
from peerd.store.connection.mysql import wait_for_sync
from peerd.store.outcomes import ClaimId, apply_verdicts, database_now
from peerd.store.schema.tables import processes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.conditions import by_index, is_working, status_is
from peerd.store.tasks.rows import BATCH, lock_tasks, to_whole_number, update_tasks, values_of_release

WORKING_STATUSES = sources(TaskEvent.RESCUE)


OUTCOMES: Final = {TaskEvent.DIE: "dead", TaskEvent.RESCUE: "failed"}
"""How the attempt counts in the time series."""
RESERVATION_LABEL: Final = "reservation"
"""In place of the label of an attempt: a reservation is none."""


class RescuedTask(msgspec.Struct, frozen=True):
    """A task that was taken back, its transition, and the label of the attempt that ended."""

    task_id: int
    event: TaskEvent
    label: str
    handler: str = ""

    @property
    def was_reserved(self) -> bool:
        """Whether a queue client had reserved it: then no attempt has ended."""
        return self.label == RESERVATION_LABEL


def events_of_rescue(rescued: Sequence[RescuedTask], cause: str) -> list[Event]:
    """The events that report what was taken back from a dead holder."""
    claimed = tuple(task.task_id for task in rescued if not task.was_reserved)
    reserved = tuple(task.task_id for task in rescued if task.was_reserved)
    dead = [f"{task.task_id} ({task.handler})" for task in rescued if task.event is TaskEvent.DIE]
    found: list[Event] = (
        [TasksRescued(cause=cause, task_ids=claimed, dead=len(dead), dead_tasks=tuple(dead[:5]))] if claimed else []
    )
    return [*found, ReservationsReleased(cause=cause, task_ids=reserved)] if reserved else found


def release_tasks_of_process(
    connection: Connection, process_id: int, cause: str, *, crashed: bool, limit: int = BATCH
) -> list[RescuedTask]:
    """Take back the tasks of a process that is dead for certain; a batch of them.

    What it has reserved for queue clients is released after any end. Locked rows are left out, see
    `holds_tasks`: the server may still be undoing the last write of that process, or another session has a transaction
    open.

    Args:
        connection: in a transaction of its own.
        process_id: its id in ``processes``, not its pid.
        cause: of its death, for the attempts.
        crashed: count an attempt and a crash; not for a process that was stopped.
        limit: tasks at the most; call again until nothing comes.
    """
    wait_for_sync(connection)  # so that the latest claim of the process is seen, on whichever server it was
    condition = tasks.c.process_id == process_id
    ids = _working_ids(connection, condition, limit)
    locked = lock_tasks(connection, ids, status_is(*WORKING_STATUSES), condition, skip_locked=True)
    if crashed:
        return _take_back(connection, locked, lambda task: transition_after_crash(task, "crash", cause), crashed=True)
    return _release(connection, locked, cause)


def holds_tasks(connection: Connection, process_id: int) -> bool:
    """Whether a process holds any task, by the table."""
    return bool(_working_ids(connection, tasks.c.process_id == process_id, 1))


def release_unknown_claims(
    connection: Connection, process_id: int, claims: Sequence[ClaimId], cause: str
) -> list[RescuedTask]:
    """Release claims that this process has in the table but does not know of, because their reply was lost.

    Rows that another session has locked are left out; they are found again.
    """
    mine, unknown = (status_is(*WORKING_STATUSES), tasks.c.process_id == process_id), set(claims)
    locked = lock_tasks(connection, [claim.id for claim in claims], *mine, skip_locked=True)
    return _release(connection, [task for task in locked if ClaimId(task.id, task.lease) in unknown], cause)


def rescue_untouched(
    connection: Connection, max_update: float, limit: int = BATCH, *, as_of: datetime | None = None
) -> list[RescuedTask]:
    """Take back tasks that were not touched for ``max_update`` seconds, by the database's clock; a batch of them.

    A reservation of a queue client is released. The client may never touch it; so the silence of its process decides.

    Only a node whose own heartbeat had no gap for that long may call it; see `peerd.manager.service`. The process
    that holds the task must be silent for as long, or unknown: a living process keeps a task that it cannot touch,
    because an open transaction has locked its row. A task without checked_at (an UPDATE by hand made it working) counts
    from when its row was written.

    Args:
        connection: in a transaction of its own.
        max_update: seconds.
        limit: tasks at the most.
        as_of: the time, by the database's clock, from which the silence is counted back: the time of the caller's
            latest heartbeat. Counted from now, a statement that a frozen server answers a minute late would find every
            task untouched.
    """
    before = seconds_from_now(-max_update) if as_of is None else as_of - timedelta(seconds=max_update)
    silent = sa.func.coalesce(tasks.c.checked_at, tasks.c.updated_at) < before
    silent &= sa.not_(_is_held_by_live_process(before))
    ids = _working_ids(connection, silent, limit)
    cause = f"the task was not touched for {max_update:g} s"
    locked = lock_tasks(connection, ids, status_is(*WORKING_STATUSES), silent, skip_locked=True)
    return _take_back(connection, locked, lambda task: transition_after_crash(task, "rescued", cause))


def _is_held_by_live_process(before: sa.ColumnElement[datetime] | datetime) -> sa.Exists:
    """The process that holds a task has sent a heartbeat since a moment.

    A record that says that it has ended is no proof: the record of an earlier incarnation is ended while its processes
    may still run. Tasks of a process whose exit was seen are released at once by `release_tasks_of_process`.
    """
    return sa.exists().where(processes.c.id == tasks.c.process_id, processes.c.checked_at >= before)


def _working_ids(connection: Connection, condition: sa.ColumnElement[bool], limit: int) -> Sequence[int]:
    """Ids of working tasks, read without locks and unordered: for ORDER BY id an optimiser may walk the table."""
    statement = sa.select(tasks.c.id).where(is_working(), condition).limit(limit)
    return connection.execute(by_index(statement, "tasks_claim")).scalars().all()


def _release(connection: Connection, locked: Sequence[Task], cause: str) -> list[RescuedTask]:
    moment = database_now(connection)
    return _take_back(connection, locked, lambda task: transition_after(task, Released(cause), moment))


def _take_back(
    connection: Connection,
    locked: Sequence[Task],
    verdict_on: Callable[[Task], TaskTransition],
    *,
    crashed: bool = False,
) -> list[RescuedTask]:
    judged = [(task, verdict_on(task)) for task in locked if task.deadline_at is None]
    apply_verdicts(connection, judged, crashed=crashed)
    lost = Counter(
        LostAttempt(task.queue, task.name or "", to_whole_number(task.worker_node_id), OUTCOMES[verdict.event])
        for task, verdict in judged
        if verdict.counted
    )
    if lost:
        count_lost_attempts(connection, lost)
    reserved = [task.id for task in locked if task.deadline_at is not None]
    update_tasks(connection, reserved, status_is(*WORKING_STATUSES), **values_of_release())
    rescued = [
        RescuedTask(task.id, verdict.event, verdict.label, f"{task.queue}/{task.name}" if task.name else task.queue)
        for task, verdict in judged
    ]
    return rescued + [RescuedTask(task_id, TaskEvent.RELEASE, RESERVATION_LABEL) for task_id in reserved]
