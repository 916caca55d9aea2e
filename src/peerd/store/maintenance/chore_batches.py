"""The chores that keep the table healthy, one bounded batch each. Safe to run on every node at once.

Each reads ids without locks, then locks or writes them by primary key with the condition repeated. What another node
is writing just now is left for the next sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status, TaskEvent, target
from peerd.domain.task_transition import TaskTransition
from peerd.store.outcomes.recording import record_attempts
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
    status_is,
)
from peerd.store.tasks.rows import (
    BATCH,
    lock_tasks,
    next_lease,
    next_lease_number,
    status_literal,
    update_available,
    update_tasks,
)

COUNT_LIMIT = 10_000
"""Counting ends here: a report must not read a million rows."""


def stage_due(connection: Connection, status: Status, limit: int = BATCH) -> int:
    """Make scheduled tasks, or failures, pending whose time has come."""
    due = (status_is(status), tasks.c.due_at <= now())
    ids = _ids(connection, sa.and_(is_waiting_as(status), tasks.c.due_at <= now()), limit, tasks.c.due_at)
    return update_available(connection, ids, *due, status=status_literal(target(TaskEvent.STAGE)))


def postpone(connection: Connection, limit: int = BATCH) -> int:
    """Make tasks scheduled that somebody wrote as pending although their start_at is ahead."""
    ahead = (status_is(Status.PENDING), tasks.c.start_at.is_not(None), tasks.c.start_at > now())
    ids = _ids(connection, is_pending_too_early(now()), limit, None)
    return update_available(connection, ids, *ahead, status=status_literal(target(TaskEvent.POSTPONE)))


def expire(connection: Connection, limit: int = BATCH) -> int:
    """Delete pending tasks whose finish_at has come."""
    return _delete(connection, Status.PENDING, now(), limit)


def purge(connection: Connection, status: Status, age: float, limit: int = BATCH) -> int:
    """Delete tasks that ended in this status more than ``age`` seconds ago."""
    return _delete(connection, status, seconds_from_now(-age), limit)


def purge_keys(connection: Connection, limit: int = BATCH) -> int:
    """Delete unique keys whose period is over."""
    over = sa.and_(unique_keys.c.expires_at.is_not(None), unique_keys.c.expires_at <= now())
    found = connection.execute(
        sa.select(unique_keys.c.queue, unique_keys.c.unique_key)
        .where(over)
        .order_by(unique_keys.c.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    deleted = 0
    for queue, key in sorted(found):
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
    """Let any node take pending tasks that are pinned to a node which has been silent for ``after`` seconds."""
    stuck = _is_stranded(connection, after)
    ids = _stranded_ids(connection, stuck, limit)
    return update_available(connection, ids, *stuck, node_id=None)


def fail_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Make pending tasks dead that are pinned to a node which has been silent for ``after`` seconds."""
    stuck = _is_stranded(connection, after)
    ids = _stranded_ids(connection, stuck, limit)
    error = f"it may run on one node only, which has been silent for more than {after:g} s"
    locked = lock_tasks(connection, ids, *stuck, skip_locked=True)
    # The lease is raised, so that this row does not meet the one of an attempt that failed at the present lease.
    unheld = {"worker_node_id": None, "process_id": None, "worker_started_at": None}
    given_up = [msgspec.structs.replace(task, lease=next_lease_number(task.lease), **unheld) for task in locked]
    values = {
        "status": status_literal(target(TaskEvent.ABANDON)),
        "error": error,
        "finished_at": now(),
        "lease": next_lease(tasks.c.lease),
    }
    if given_up:
        record_attempts(
            connection, given_up, TaskTransition(event=TaskEvent.ABANDON, counted=False, label="dead", error=error)
        )
    return update_tasks(connection, [task.id for task in locked], **values)


def count_pinned(connection: Connection, after: float) -> int:
    """How many pending tasks, up to `COUNT_LIMIT`, wait for a node which has been silent for ``after`` seconds."""
    return len(_stranded_ids(connection, _is_stranded(connection, after), COUNT_LIMIT))


StrandedConditions = tuple[sa.ColumnElement[bool], ...]


def _is_stranded(connection: Connection, after: float) -> StrandedConditions:
    """What tasks are that wait for a node which has been silent for so long."""
    silent = sa.func.coalesce(nodes.c.checked_at, nodes.c.created_at) < seconds_from_now(-after)
    ids = connection.execute(sa.select(nodes.c.id).where(sa.not_(nodes.c.active), silent)).scalars().all()
    lanes = [lane for node_id in ids for lane in (node_id, -1 - node_id)]
    return status_is(Status.PENDING), tasks.c.lane.in_(lanes) if lanes else sa.false()


def _stranded_ids(connection: Connection, stuck: StrandedConditions, limit: int) -> Sequence[int]:
    """Ids of such tasks, by the claim's indexes, lane by lane: however many others are pending, or in the table."""
    _, in_their_lanes = stuck
    ids: list[int] = []
    for kind in () if isinstance(in_their_lanes, sa.False_) else (PENDING_WITHOUT_KEY, PENDING_WITH_KEY):
        for queue in _queues_of(connection, kind):
            found = sa.select(tasks.c.id).where(kind.of(queue), in_their_lanes).limit(limit - len(ids))
            ids += connection.execute(by_index(found, kind.index)).scalars() if len(ids) < limit else ()
    return ids


def _queues_of(connection: Connection, kind: PendingKind) -> Iterator[str]:
    """The queues in which tasks of a kind are pending: a step in the index for each, and no walk through it."""
    last = ""
    while True:
        following = sa.select(sa.func.min(kind.queue)).where(kind.where(lambda queue, last=last: queue > last))  # type: ignore[misc]
        queue = connection.execute(by_index(following, kind.index)).scalar()
        if queue is None:
            return
        yield queue
        last = queue


def _ids(
    connection: Connection, condition: sa.ColumnElement[bool], limit: int, order: sa.ColumnElement[object] | None
) -> Sequence[int]:
    return connection.execute(sa.select(tasks.c.id).where(condition).order_by(order).limit(limit)).scalars().all()


def _delete(connection: Connection, status: Status, until: sa.ColumnElement[datetime], limit: int) -> int:
    """Delete tasks of a status whose time to go has come."""
    over = tasks.c.closing_at <= until
    ids = _ids(connection, sa.and_(is_closing_as(status), over), limit, tasks.c.closing_at)
    locked = lock_tasks(connection, ids, status_is(status), over, skip_locked=True)
    if locked:
        delete_rows(connection, locked)
    return len(locked)
