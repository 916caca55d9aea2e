"""Quarantined tasks, which have crashed a process and must run alone: which process stops claiming until it is empty.

An idle process takes such a task at once. Where all are busy, one has to claim nothing more until it runs nothing. If
all did so, a single task would cost the cluster all its slots for as long as the longest attempt runs; if none did, the
task would wait for ever. So the processes have an order, the oldest first: the first one empties when the task has
waited for `patience`, the second after twice as long, the third after four times; the younger half never do. None
empties for a task that its limits do not let start.

A new process for each such task would need no order, but it would exceed the number of processes that the node is
configured for, and the manager would start it, and the worker's ``setup``, on every crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.limits import LimitCapacity
from peerd.store.schema.tables import nodes, processes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import is_on_duty, is_open, is_startable, quarantined_lanes
from peerd.store.tasks.conditions import PENDING_KINDS

MAX_TASKS_CHECKED: Final = 64
"""Tasks of each lane of each queue that are read."""
MAX_DOUBLINGS: Final = 16
"""Processes in the order for which the wait doubles: to a week where patience is 10 s. It must stay a valid time."""


def should_empty_for_quarantined(connection: Connection, claimer: Claimer, patience: float) -> bool:
    """Whether this process is to claim nothing until it runs nothing, so that it can take a quarantined task.

    Several tasks of each lane are read: urgent ones that keep coming must not hide one that waits for ever.
    ``patience`` is the number of seconds that such a task waits for an idle process.
    """
    for lane, rivals in zip(
        quarantined_lanes(claimer.node_id), (sa.true(), processes.c.node_id == claimer.node_id), strict=True
    ):
        ids = connection.execute(_quarantined_ids(claimer.queues, lane), claimer.parameters()).scalars().all()
        if ids and _any_overdue(connection, ids, patience):
            before, among = _rank_among_processes(connection, claimer, rivals)
            if 2 * before < among and _any_overdue(connection, ids, patience * 2.0 ** min(before, MAX_DOUBLINGS)):
                return True
    return False


@lru_cache(maxsize=256)
def _quarantined_ids(serves: tuple[str, ...], lane: int) -> sa.Select[int]:
    """The first ids of a lane of these queues, of tasks with and without keys."""
    heads = []
    for queue in serves:
        for kind in PENDING_KINDS:
            first = kind.first(queue, tasks.c.id, limit=MAX_TASKS_CHECKED)
            takeable = first.where(tasks.c.lane == lane, is_startable(), is_on_duty(), is_open(queue))
            heads.append(sa.select(takeable.subquery()))
    return sa.select(sa.union_all(*heads).subquery().c.id)


def _any_overdue(connection: Connection, ids: Sequence[int], seconds: float) -> bool:
    """Whether one has waited for so long, and its limits let it start, as far as a read without locks can show."""
    late = sa.select(tasks.c.queue, tasks.c.limit_key).distinct()
    late = late.where(tasks.c.id.in_(ids), tasks.c.due_at < seconds_from_now(-seconds))
    for queue, key in connection.execute(late).all():
        capacity = LimitCapacity(connection, queue)
        if capacity.for_queue() > 0 and capacity.for_key(key or "") > 0:
            return True
    return False


def _rank_among_processes(connection: Connection, claimer: Claimer, rivals: sa.ColumnElement[bool]) -> tuple[int, int]:
    """How many living processes of its kind are older, and how many there are, among those that could take the task."""
    row = connection.execute(_count_processes().where(rivals), {"process": claimer.process_id}).one()
    return int(row.older or 0), int(row.all)


@lru_cache(maxsize=1)
def _count_processes() -> sa.Select[int, int]:
    itself, process = processes.alias("itself"), sa.bindparam("process", type_=sa.BigInteger())
    kind = sa.select(itself.c.kind).where(itself.c.id == process).scalar_subquery()
    on_duty = sa.and_(nodes.c.active, sa.not_(nodes.c.draining), nodes.c.incarnation == processes.c.incarnation)
    older = sa.case((processes.c.id < process, 1), else_=0)
    return (
        sa.select(sa.func.sum(older).label("older"), sa.func.count().label("all"))
        .select_from(processes.join(nodes, nodes.c.id == processes.c.node_id))
        .where(processes.c.ended_at.is_(None), processes.c.kind == kind, on_duty)
    )
