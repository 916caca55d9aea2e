"""The chores that maintain the tables, one bounded batch each. They are safe to run on every node at once.

Each reads ids without locks, then locks or writes them by primary key with the condition repeated. Rows that another
session is writing are left for the next batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status, TaskEvent, target
from peerd.domain.outcome import TaskTransition
from peerd.store.outcomes.recording import record_attempts
from peerd.store.schema.lanes import quarantined_lane
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import nodes, processes, tasks, unique_keys
from peerd.store.tasks.actions import delete_rows
from peerd.store.tasks.conditions import (
    PENDING_WITH_KEY,
    PENDING_WITHOUT_KEY,
    PendingKind,
    by_index,
    is_closing_as,
    is_pending_too_early,
    is_waiting_as,
    select_by_id,
    status_is,
)
from peerd.store.tasks.log_lines import deletable_with_lines
from peerd.store.tasks.rows import (
    BATCH,
    lock_tasks,
    next_lease,
    next_lease_number,
    start_at_when_pending,
    status_literal,
    update_available,
    update_tasks,
)

COUNT_LIMIT = 10_000
"""Counting ends here: a report must not read a million rows."""


class StagedTasks(msgspec.Struct, frozen=True):
    """How many tasks have become pending, and in which queues."""

    count: int
    queues: tuple[str, ...]


def stage_due(connection: Connection, status: Status, limit: int = BATCH) -> int:
    """Make scheduled tasks, or failures, pending whose time has come."""
    return _stage(connection, status, limit)[0]


def stage_all_due(connection: Connection, limit: int = BATCH) -> StagedTasks:
    """Make failures and scheduled tasks pending whose time has come; so many at the most, the longest due first."""
    failures, queues = _stage(connection, Status.FAILURE, limit)
    scheduled, more = _stage(connection, Status.SCHEDULED, limit - failures) if failures < limit else (0, set())
    return StagedTasks(failures + scheduled, tuple(sorted(queues | more)))


def postpone(connection: Connection, limit: int = BATCH) -> int:
    """Make tasks scheduled that were written as pending although their start_at is ahead."""
    ahead = (status_is(Status.PENDING), tasks.c.start_at.is_not(None), tasks.c.start_at > now())
    rows = connection.execute(sa.select(tasks.c.id).where(is_pending_too_early(now())).limit(limit))
    return update_available(connection, rows.scalars().all(), *ahead, status=status_literal(target(TaskEvent.POSTPONE)))


def expire(connection: Connection, limit: int = BATCH) -> int:
    """Delete pending tasks whose finish_at has come."""
    return _delete(connection, Status.PENDING, now(), limit)


def purge(connection: Connection, status: Status, age: float, limit: int = BATCH) -> int:
    """Delete tasks that ended in this status more than ``age`` seconds ago."""
    return _delete(connection, status, seconds_from_now(-age), limit)


def purge_keys(connection: Connection, limit: int = BATCH) -> int:
    """Delete unique keys whose period is over."""
    over = sa.and_(unique_keys.c.expires_at.is_not(None), unique_keys.c.expires_at <= now())
    expired = sa.select(unique_keys.c.queue, unique_keys.c.unique_key).where(over)
    expired = expired.order_by(unique_keys.c.expires_at).limit(limit).with_for_update(skip_locked=True)
    deleted = 0
    for queue, key in sorted(connection.execute(expired).all()):
        mine = sa.and_(unique_keys.c.queue == queue, unique_keys.c.unique_key == key)
        deleted += connection.execute(sa.delete(unique_keys).where(mine, over)).rowcount
    return deleted


def purge_processes(connection: Connection, age: float, limit: int = BATCH) -> int:
    """Delete the records of processes that ended, or fell silent, more than ``age`` seconds ago."""
    old = sa.func.coalesce(processes.c.ended_at, processes.c.checked_at) <= seconds_from_now(-age)
    found = sa.select(processes.c.id).where(old).order_by(processes.c.id).limit(limit)
    ids = connection.execute(found.with_for_update(skip_locked=True)).scalars().all()
    if not ids:
        return 0
    return connection.execute(sa.delete(processes).where(processes.c.id.in_(sorted(ids)), old)).rowcount


def free_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Unpin pending tasks that are pinned to a node which has been silent for ``after`` seconds."""
    ids, stranded = _stranded(connection, after, limit)
    return update_available(connection, ids, *stranded, node_id=None)


def fail_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Make pending tasks dead that are pinned to a node which has been silent for ``after`` seconds."""
    ids, stranded = _stranded(connection, after, limit)
    error = f"it is pinned to a node that has been silent for more than {after:g} s"
    locked = lock_tasks(connection, ids, *stranded, skip_locked=True)
    # The lease is raised, so that this row does not collide with that of an attempt which failed at the present lease.
    unheld = {"worker_node_id": None, "process_id": None, "worker_started_at": None}
    given_up = [msgspec.structs.replace(task, lease=next_lease_number(task.lease), **unheld) for task in locked]
    if given_up:
        record_attempts(
            connection, given_up, TaskTransition(event=TaskEvent.ABANDON, counted=False, label="dead", error=error)
        )
    values = {"status": status_literal(target(TaskEvent.ABANDON)), "finished_at": now()}
    return update_tasks(
        connection, [task.id for task in locked], error=error, lease=next_lease(tasks.c.lease), **values
    )


def count_pinned(connection: Connection, after: float) -> int:
    """How many pending tasks, up to `COUNT_LIMIT`, wait for a node which has been silent for ``after`` seconds."""
    return len(_stranded(connection, after, COUNT_LIMIT)[0])


def nodes_of_pinned(connection: Connection, after: float) -> list[str]:
    """The names of the nodes for which the first hundred of them wait."""
    ids, _ = _stranded(connection, after, 100)
    waiting = select_by_id(sa.select(tasks.c.node_id).where(tasks.c.id.in_(ids)))
    return list(connection.execute(sa.select(nodes.c.name).where(nodes.c.id.in_(waiting))).scalars())


def _stage(connection: Connection, status: Status, limit: int) -> tuple[int, set[str]]:
    """Stage tasks of one status: how many, and their queues."""
    due = tasks.c.due_at <= now()
    waiting = sa.select(tasks.c.id, tasks.c.queue).where(is_waiting_as(status), due)
    rows = connection.execute(waiting.order_by(tasks.c.due_at).limit(limit)).all()
    pending = status_literal(target(TaskEvent.STAGE))
    values = {"status": pending, "start_at": start_at_when_pending()}
    count = update_available(connection, [row.id for row in rows], status_is(status), due, **values)
    return count, {row.queue for row in rows}


def _stranded(
    connection: Connection, after: float, limit: int
) -> tuple[Sequence[int], tuple[sa.ColumnElement[bool], ...]]:
    """Ids of pending tasks that wait for a node which has been silent for so long, and the conditions that they meet.

    They are read by the claim's indexes, lane by lane, however many other tasks there are.
    """
    silent = sa.func.coalesce(nodes.c.checked_at, nodes.c.created_at) < seconds_from_now(-after)
    node_ids = connection.execute(sa.select(nodes.c.id).where(sa.not_(nodes.c.active), silent)).scalars().all()
    in_their_lanes = tasks.c.lane.in_([lane for node_id in node_ids for lane in (node_id, quarantined_lane(node_id))])
    ids: list[int] = []
    for kind in (PENDING_WITHOUT_KEY, PENDING_WITH_KEY) if node_ids else ():
        for queue in _queues_of(connection, kind):
            found = sa.select(tasks.c.id).where(kind.of(queue), in_their_lanes).limit(limit - len(ids))
            ids += connection.execute(by_index(found, kind.index)).scalars() if len(ids) < limit else ()
    return ids, (status_is(Status.PENDING), in_their_lanes)


def _queues_of(connection: Connection, kind: PendingKind) -> Iterator[str]:
    """The queues in which tasks of a kind are pending: a step in the index for each, and no walk through it."""
    last: Any = ""
    while last is not None:
        following = sa.select(sa.func.min(kind.queue)).where(kind.where(lambda queue, last=last: queue > last))  # type: ignore[misc]
        last = connection.execute(by_index(following, kind.index)).scalar()
        if last is not None:
            yield last


def _delete(connection: Connection, status: Status, until: sa.ColumnElement[datetime], limit: int) -> int:
    """Delete tasks of a status whose ``closing_at`` has come, and their log lines; how many of both.

    Tasks with many lines are deleted a few at a time, so that a batch stays small.
    """
    over = tasks.c.closing_at <= until
    found = sa.select(tasks.c.id).where(is_closing_as(status), over).order_by(tasks.c.closing_at).limit(limit)
    ids, lines = deletable_with_lines(connection, connection.execute(found).scalars().all())
    locked = lock_tasks(connection, ids, status_is(status), over, skip_locked=True)
    return lines + (delete_rows(connection, locked) if locked else 0)
