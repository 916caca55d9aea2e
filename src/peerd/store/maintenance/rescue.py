"""Taking tasks back from holders that are dead: a process whose death was seen, and tasks that nobody touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import TaskEvent, sources
from peerd.domain.outcome import Released
from peerd.domain.task import Task
from peerd.domain.task_transition import TaskTransition, transition_after, transition_after_crash
from peerd.store.connection.galera import wait_for_sync
from peerd.store.outcomes.recording import ClaimId, apply_verdicts, database_now
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import processes, tasks
from peerd.store.tasks.conditions import by_index, is_working, status_is
from peerd.store.tasks.rows import BATCH, lock_tasks

WORKING_STATUSES = sources(TaskEvent.RESCUE)


class RescuedTask(msgspec.Struct, frozen=True):
    """A task that was taken back, and what became of it."""

    task_id: int
    event: TaskEvent
    label: str


def release_tasks_of_process(
    connection: Connection, process_id: int, cause: str, *, crashed: bool, limit: int = BATCH
) -> list[RescuedTask]:
    """Take back the tasks of a process that is dead for certain; a batch of them.

    Rows that are locked are left out. That may be the last write of that process, which its server is undoing just
    now, or somebody's transaction that stays open; see `holds_tasks`.

    Args:
        connection: in a transaction of its own.
        process_id: its identity in ``processes``, not its pid.
        cause: how it died, for the attempts.
        crashed: it counts an attempt and a crash. Not so when it was told to end.
        limit: tasks at the most; call again until nothing comes.
    """
    wait_for_sync(connection)  # with what the process claimed last, on whichever server
    condition = tasks.c.process_id == process_id
    ids = _working_ids(connection, condition, limit)
    held = lock_tasks(connection, ids, status_is(*WORKING_STATUSES), condition, skip_locked=True)
    if crashed:
        return _release_locked(
            connection, held, lambda task: transition_after_crash(task, "crash", cause), crashed=True
        )
    moment = database_now(connection)
    return _release_locked(connection, held, lambda task: transition_after(task, Released(cause), moment))


def holds_tasks(connection: Connection, process_id: int) -> bool:
    """Whether the table says that a process holds any task."""
    return bool(_working_ids(connection, tasks.c.process_id == process_id, 1))


def release_unknown_claims(
    connection: Connection, process_id: int, held: Sequence[ClaimId], cause: str
) -> list[RescuedTask]:
    """Give back claims that this process has in the table but does not know of: their answer was lost.

    Rows that another session has locked are left out; they are found again.
    """
    moment = database_now(connection)
    unknown = set(held)
    mine = (status_is(*WORKING_STATUSES), tasks.c.process_id == process_id)
    own = lock_tasks(connection, [one.id for one in held], *mine, skip_locked=True)
    unknown_tasks = [task for task in own if ClaimId(task.id, task.lease) in unknown]
    return _release_locked(connection, unknown_tasks, lambda task: transition_after(task, Released(cause), moment))


def rescue_untouched(
    connection: Connection, max_update: float, limit: int = BATCH, *, as_of: datetime | None = None
) -> list[RescuedTask]:
    """Take back tasks that nobody has touched for ``max_update`` seconds, by the database's clock; a batch of them.

    Only a node may call it that has itself beaten without a gap for that long; see `peerd.manager.rescue_guard`.
    The process that holds the task must be silent for as long, or ended, or unknown: a living one says that it goes on
    whatever keeps one of its tasks from being touched, such as a transaction that stays open and has locked its row.
    A task whose checked_at is missing (somebody wrote it as working by hand) counts from when its row was written.

    Args:
        connection: in a transaction of its own.
        max_update: seconds.
        limit: tasks at the most.
        as_of: the moment, by the database's clock, that the silence is counted back from; that of the caller's latest
            beat. Counted from now, a statement that a frozen server answers a minute late would find everything silent.
    """
    before = seconds_from_now(-max_update) if as_of is None else as_of - timedelta(seconds=max_update)
    silent = sa.func.coalesce(tasks.c.checked_at, tasks.c.updated_at) < before
    silent &= sa.not_(_is_held_by_live_process(before))
    ids = _working_ids(connection, silent, limit)
    cause = f"nobody has touched the task for {max_update:g} s"
    frozen = lock_tasks(connection, ids, status_is(*WORKING_STATUSES), silent, skip_locked=True)
    return _release_locked(connection, frozen, lambda task: transition_after_crash(task, "rescued", cause))


def _is_held_by_live_process(before: sa.ColumnElement[datetime] | datetime) -> sa.Exists:
    """That the process which holds a task has not ended, and has beaten since a moment."""
    return sa.exists().where(
        processes.c.id == tasks.c.process_id, processes.c.ended_at.is_(None), processes.c.checked_at >= before
    )


def _working_ids(connection: Connection, condition: sa.ColumnElement[bool], limit: int) -> Sequence[int]:
    """Ids of working tasks, read without locks, in no order: one by id would tempt an optimiser to walk the table."""
    statement = sa.select(tasks.c.id).where(is_working(), condition).limit(limit)
    return connection.execute(by_index(statement, "tasks_claim")).scalars().all()


def _release_locked(
    connection: Connection,
    locked: Sequence[Task],
    verdict_on: Callable[[Task], TaskTransition],
    *,
    crashed: bool = False,
) -> list[RescuedTask]:
    judged = [(task, verdict_on(task)) for task in locked]
    apply_verdicts(connection, judged, crashed=crashed)
    return [RescuedTask(task.id, verdict.event, verdict.label) for task, verdict in judged]
