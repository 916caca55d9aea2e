"""Taking tasks back from holders that are dead: a process whose death was seen, and tasks that nobody touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Event, sources
from peerd.domain.outcome import Released
from peerd.domain.task import Task
from peerd.domain.verdict import Verdict, judge, judge_crash
from peerd.store.clock import seconds_from_now
from peerd.store.finish import Held, apply_verdict, database_now
from peerd.store.rows import BATCH, lock_tasks, status_is
from peerd.store.tables import processes, tasks

WORKING = sources(Event.RESCUE)


class Rescued(msgspec.Struct, frozen=True):
    """A task that was taken back, and what became of it."""

    task_id: int
    event: Event
    label: str


def release_process(
    connection: Connection, process_id: int, cause: str, *, crashed: bool, limit: int = BATCH
) -> list[Rescued]:
    """Take back the tasks of a process that is dead for certain; a batch of them.

    Args:
        connection: in a transaction of its own.
        process_id: its identity in ``processes``, not its pid.
        cause: how it died, for the attempts.
        crashed: it counts an attempt and a crash. Not so when it was told to end.
        limit: tasks at the most; call again until nothing comes.
    """
    condition = tasks.c.process_id == process_id
    ids = _candidates(connection, condition, limit)
    if crashed:
        return _take_back(connection, ids, (condition,), lambda task: judge_crash(task, "crash", cause), crashed=True)
    moment = database_now(connection)
    return _take_back(connection, ids, (condition,), lambda task: judge(task, Released(cause), moment), crashed=False)


def release_held(connection: Connection, process_id: int, held: Sequence[Held], cause: str) -> list[Rescued]:
    """Give back claims that this process has in the table but does not know of: their answer was lost."""
    moment = database_now(connection)
    known = {(one.id, one.lease) for one in held}
    released = []
    for task in lock_tasks(connection, [one.id for one in held], status_is(*WORKING), tasks.c.process_id == process_id):
        if (task.id, task.lease) in known:
            apply_verdict(connection, task, judge(task, Released(cause), moment))
            released.append(Rescued(task.id, Event.RELEASE, "released"))
    return released


def rescue_frozen(connection: Connection, max_update: float, limit: int = BATCH) -> list[Rescued]:
    """Take back tasks that nobody has touched for ``max_update`` seconds, by the database's clock; a batch of them.

    Only a node may call it that has itself beaten without a gap for that long; see `peerd.manager.pulse`.
    A task whose checked_at is missing (somebody wrote it as working by hand) counts from when its row was written.
    """
    silent = sa.func.coalesce(tasks.c.checked_at, tasks.c.updated_at) < seconds_from_now(-max_update)
    ids = _candidates(connection, silent, limit)
    cause = f"nobody has touched the task for {max_update:g} s"
    return _take_back(connection, ids, (silent,), lambda task: judge_crash(task, "rescued", cause), crashed=False)


def release_earlier_incarnations(
    connection: Connection, node_id: int, incarnation: str, limit: int = BATCH
) -> list[Rescued]:
    """Take back what processes of this node's earlier lives held; the node has just registered anew."""
    mine = sa.select(processes.c.id).where(processes.c.incarnation == incarnation, processes.c.node_id == node_id)
    condition = sa.and_(
        tasks.c.worker_node_id == node_id, sa.or_(tasks.c.process_id.is_(None), tasks.c.process_id.not_in(mine))
    )
    ids = _candidates(connection, condition, limit)
    cause = "its node was started anew"
    return _take_back(connection, ids, (condition,), lambda task: judge_crash(task, "crash", cause), crashed=False)


def _candidates(connection: Connection, condition: sa.ColumnElement[bool], limit: int) -> Sequence[int]:
    """Ids of working tasks, read without locks."""
    statement = sa.select(tasks.c.id).where(status_is(*WORKING), condition).order_by(tasks.c.id).limit(limit)
    return connection.execute(statement).scalars().all()


def _take_back(
    connection: Connection,
    ids: Sequence[int],
    conditions: tuple[sa.ColumnElement[bool], ...],
    verdict_on: Callable[[Task], Verdict],
    *,
    crashed: bool,
) -> list[Rescued]:
    taken = []
    for task in lock_tasks(connection, ids, status_is(*WORKING), *conditions, skip_locked=True):
        verdict = verdict_on(task)
        apply_verdict(connection, task, verdict, crashed=crashed)
        taken.append(Rescued(task.id, verdict.event, verdict.label))
    return taken
