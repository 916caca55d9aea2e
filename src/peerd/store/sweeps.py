"""The chores that keep the table healthy, one bounded batch each. Safe to run on every node at once.

Each reads ids without locks, then locks or writes them by primary key with the condition repeated. What another node
is writing just now is left for the next sweep.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Event, Status, target
from peerd.domain.verdict import Verdict
from peerd.store.clock import now, seconds_from_now
from peerd.store.finish import record_attempts
from peerd.store.intervene import delete_rows
from peerd.store.rows import BATCH, becomes, by_index, lock_tasks, raised, raised_lease, status_is, update_tasks
from peerd.store.tables import DUE, nodes, processes, tasks, unique_keys
from peerd.store.types import MYSQL

MOST_COUNTED = 10_000
"""Counting ends here: a report must not read a million rows."""


def let_arrive(connection: Connection, status: Status, limit: int = BATCH) -> int:
    """Make scheduled tasks, or failures, pending whose time has come."""
    due = (status_is(status), tasks.c.due_at <= now())
    # The partial index is found by its own condition, word for word.
    ids = _ids(connection, sa.and_(sa.text(DUE), *due), limit, tasks.c.due_at)
    return update_tasks(connection, ids, *due, status=becomes(target(Event.ARRIVE)))


def postpone(connection: Connection, limit: int = BATCH) -> int:
    """Make tasks scheduled that somebody wrote as pending although their start_at is ahead."""
    ahead = (status_is(Status.PENDING), tasks.c.start_at.is_not(None), tasks.c.start_at > now())
    if connection.dialect.name in MYSQL:
        ids = _ids(connection, sa.and_(*ahead, tasks.c.due_at > now()), limit, tasks.c.due_at)
    else:
        ids = _ids(connection, sa.and_(*ahead), limit, tasks.c.start_at)
    return update_tasks(connection, ids, *ahead, status=becomes(target(Event.POSTPONE)))


def expire(connection: Connection, limit: int = BATCH) -> int:
    """Delete pending tasks whose finish_at has come."""
    late = (status_is(Status.PENDING), tasks.c.closing_at <= now())
    return _delete(connection, late, limit)


def purge(connection: Connection, status: Status, age: float, limit: int = BATCH) -> int:
    """Delete tasks that ended in this status more than ``age`` seconds ago."""
    old = (status_is(status), tasks.c.closing_at <= seconds_from_now(-age))
    return _delete(connection, old, limit)


def purge_keys(connection: Connection, limit: int = BATCH) -> int:
    """Delete unique keys whose period is over."""
    over = sa.and_(unique_keys.c.expires_at.is_not(None), unique_keys.c.expires_at <= now())
    found = connection.execute(
        sa.select(unique_keys.c.queue, unique_keys.c.unique_key)
        .where(over)
        .order_by(unique_keys.c.expires_at)
        .limit(limit)
    ).all()
    gone = 0
    for queue, key in sorted(found):
        mine = sa.and_(unique_keys.c.queue == queue, unique_keys.c.unique_key == key)
        gone += connection.execute(sa.delete(unique_keys).where(mine, over)).rowcount
    return gone


def purge_processes(connection: Connection, age: float, limit: int = BATCH) -> int:
    """Delete the records of processes that ended, or fell silent, more than ``age`` seconds ago."""
    old = sa.func.coalesce(processes.c.ended_at, processes.c.checked_at) <= seconds_from_now(-age)
    ids = connection.execute(sa.select(processes.c.id).where(old).order_by(processes.c.id).limit(limit)).scalars().all()
    if not ids:
        return 0
    return connection.execute(sa.delete(processes).where(processes.c.id.in_(sorted(ids)), old)).rowcount


def free_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Let any node take pending tasks that are pinned to a node which has been silent for ``after`` seconds."""
    stuck = _pinned_to_silent(connection, after)
    ids = _pinned_ids(connection, stuck, limit)
    return update_tasks(connection, ids, *stuck, node_id=None)


def fail_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Make pending tasks dead that are pinned to a node which has been silent for ``after`` seconds."""
    stuck = _pinned_to_silent(connection, after)
    ids = _pinned_ids(connection, stuck, limit)
    error = f"it may run on one node only, which has been silent for more than {after:g} s"
    doomed = lock_tasks(connection, ids, *stuck, skip_locked=True)
    # The lease is raised, so that this row does not meet the one of an attempt that failed at the present lease.
    unheld = {"worker_node_id": None, "process_id": None, "worker_started_at": None}
    given_up = [msgspec.structs.replace(task, lease=raised_lease(task.lease), **unheld) for task in doomed]
    values = {
        "status": becomes(target(Event.ABANDON)),
        "error": error,
        "finished_at": now(),
        "lease": raised(tasks.c.lease),
    }
    if given_up:
        record_attempts(connection, given_up, Verdict(event=Event.ABANDON, counted=False, label="dead", error=error))
    return update_tasks(connection, [task.id for task in doomed], **values)


def count_pinned(connection: Connection, after: float) -> int:
    """How many pending tasks, up to `MOST_COUNTED`, wait for a node which has been silent for ``after`` seconds."""
    return len(_pinned_ids(connection, _pinned_to_silent(connection, after), MOST_COUNTED))


Pinned = tuple[sa.ColumnElement[bool], ...]


def _pinned_to_silent(connection: Connection, after: float) -> Pinned:
    """What tasks are that wait for a node which has been silent for so long."""
    silent = sa.func.coalesce(nodes.c.checked_at, nodes.c.created_at) < seconds_from_now(-after)
    ids = connection.execute(sa.select(nodes.c.id).where(sa.not_(nodes.c.active), silent)).scalars().all()
    lanes = [lane for node_id in ids for lane in (node_id, -1 - node_id)]
    return status_is(Status.PENDING), tasks.c.lane.in_(lanes) if lanes else sa.false()


def _pinned_ids(connection: Connection, stuck: Pinned, limit: int) -> Sequence[int]:
    """Ids of such tasks, by the claim's index, lane by lane: however many others are pending, or in the table."""
    waiting = _queues_of_pending(connection) if not isinstance(stuck[1], sa.False_) else []
    if not waiting:
        return []
    statement = sa.select(tasks.c.id).where(*stuck, tasks.c.queue.in_(waiting)).limit(limit)
    return connection.execute(by_index(statement, "tasks_claim")).scalars().all()


def _queues_of_pending(connection: Connection) -> list[str]:
    """The queues in which tasks are pending: a step in the claim's index for each, and no walk through it."""
    found: list[str] = []
    following = sa.select(tasks.c.queue).where(status_is(Status.PENDING)).order_by(tasks.c.queue).limit(1)
    while True:
        step = following.where(tasks.c.queue > found[-1]) if found else following
        queue = connection.execute(by_index(step, "tasks_claim")).scalar()
        if queue is None:
            return found
        found.append(queue)


def _ids(
    connection: Connection, condition: sa.ColumnElement[bool], limit: int, order: sa.ColumnElement[object]
) -> Sequence[int]:
    return connection.execute(sa.select(tasks.c.id).where(condition).order_by(order).limit(limit)).scalars().all()


def _delete(connection: Connection, conditions: tuple[sa.ColumnElement[bool], ...], limit: int) -> int:
    ids = _ids(connection, sa.and_(*conditions), limit, tasks.c.closing_at)
    doomed = lock_tasks(connection, ids, *conditions, skip_locked=True)
    if doomed:
        delete_rows(connection, doomed)
    return len(doomed)
