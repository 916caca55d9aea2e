"""The batches of the chores: what each does in one transaction. They are safe to run on every node at once.

Each reads ids without locks, then locks or writes them by primary key with the condition repeated. Rows that another
session is writing are left for the next batch.

Some queues keep done tasks for longer or shorter than the others. The tasks that ended are read in the order of their
ends, by an index that knows no queues, so that no task costs an index entry more. Each age has its own walk along this
order (`peerd.manager.walks`): it goes up to the tasks that ended so long ago, deletes those of its own queues,
and leaves the others to walks of other ages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status, TaskEvent, target
from peerd.domain.outcome import TaskTransition
from peerd.store.outcomes import record_attempts
from peerd.store.schema.tables import nodes, processes, tasks, unique_keys
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import delete_oldest
from peerd.store.take.eligibility import quarantined_lane
from peerd.store.tasks.actions import delete_rows
from peerd.store.tasks.conditions import (
    PENDING_KINDS,
    by_index,
    is_closing_as,
    is_pending_too_early,
    is_waiting_as,
    select_by_id,
    status_is,
)
from peerd.store.tasks.counts import queues_of
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
LATE_COMMIT: Final = 60.0
"""Seconds that may pass between the end of a task and the commit that shows it."""


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
    return delete_oldest(connection, unique_keys, unique_keys.c.expires_at, now(), limit)


def purge_processes(connection: Connection, age: float, limit: int = BATCH) -> int:
    """Delete the records of processes that ended, or fell silent, more than ``age`` seconds ago."""
    last_seen = sa.func.coalesce(processes.c.ended_at, processes.c.checked_at)
    return delete_oldest(connection, processes, last_seen, seconds_from_now(-age), limit)


def free_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Unpin pending tasks that are pinned to a node which has been silent for ``after`` seconds."""
    ids, stranded = _stranded(connection, after, limit)
    return update_available(connection, ids, *stranded, node_id=None)


def fail_pinned(connection: Connection, after: float, limit: int = BATCH) -> int:
    """Make pending tasks dead that are pinned to a node which has been silent for ``after`` seconds."""
    ids, stranded = _stranded(connection, after, limit)
    error = f"it is pinned to a node that has been silent for more than {after:g} s"
    locked = lock_tasks(connection, ids, *stranded, skip_locked=True)
    # The lease is raised: this row must not collide with the row of an attempt that failed at the present lease.
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
    for kind in PENDING_KINDS if node_ids else ():
        for queue in queues_of(connection, kind):
            found = sa.select(tasks.c.id).where(kind.of(queue), in_their_lanes).limit(limit - len(ids))
            ids += connection.execute(by_index(found, kind.index)).scalars() if len(ids) < limit else ()
    return ids, (status_is(Status.PENDING), in_their_lanes)


def _delete(connection: Connection, status: Status, until: sa.ColumnElement[datetime], limit: int) -> int:
    """Delete tasks of a status whose ``closing_at`` has come, and their log lines; how many of both.

    Tasks with many lines are deleted a few at a time, so that a batch stays small.
    """
    over = tasks.c.closing_at <= until
    found = sa.select(tasks.c.id).where(is_closing_as(status), over).order_by(tasks.c.closing_at).limit(limit)
    ids, lines = deletable_with_lines(connection, connection.execute(found).scalars().all())
    locked = lock_tasks(connection, ids, status_is(status), over, skip_locked=True)
    return lines + (delete_rows(connection, locked) if locked else 0)


# ---------------------------------------------------------------- history


class HistoryAge(msgspec.Struct, frozen=True):
    """The done tasks that are deleted after ``age`` seconds: those of some queues, or of all but some."""

    age: float
    queues: frozenset[str]
    are_exceptions: bool = False

    def covers(self, queue: str) -> bool:
        """Whether tasks of a queue are deleted after this age."""
        return (queue in self.queues) is not self.are_exceptions


class HistoryPlace(msgspec.Struct, frozen=True):
    """A place in the order of the ends: a time and an id."""

    closing_at: datetime
    task_id: int


class HistoryStep(msgspec.Struct, frozen=True):
    """What a step of a walk has done.

    Attributes:
        read: the number of tasks; of a step that was cut because its tasks have many log lines, the most.
        deleted: the number of tasks and of their log lines.
        place: of the last task that was read.
        settled: of the last one before which nothing is left for a later walk.
    """

    read: int
    deleted: int
    place: HistoryPlace | None
    settled: HistoryPlace | None


def ages_of(histories: Mapping[str, float], general: float) -> list[HistoryAge]:
    """The ages at which done tasks are deleted: the general one, and those of the queues with their own.

    >>> [(one.age, sorted(one.queues), one.are_exceptions) for one in ages_of({"a": 60.0, "b": 9.0, "c": 5.0}, 60.0)]
    [(60.0, ['b', 'c'], True), (5.0, ['c'], False), (9.0, ['b'], False)]
    """
    own = {queue: age for queue, age in histories.items() if age != general}
    return [HistoryAge(general, frozenset(own), are_exceptions=True)] + [
        HistoryAge(age, frozenset(queue for queue, its_age in own.items() if its_age == age))
        for age in sorted(set(own.values()))
    ]


def purge_step(
    connection: Connection, wanted: HistoryAge, after: HistoryPlace | None, limit: int = BATCH
) -> HistoryStep:
    """Read the next done tasks in the order of their ends, at most ``limit``, and delete those that are covered."""
    is_old = tasks.c.closing_at <= seconds_from_now(-wanted.age)
    columns = (tasks.c.id, tasks.c.queue, tasks.c.closing_at, now().label("now"))
    found = sa.select(*columns).where(is_closing_as(Status.DONE), is_old, *_beyond(after))
    rows = connection.execute(found.order_by(tasks.c.closing_at, tasks.c.id).limit(limit)).all()
    if not rows:
        return HistoryStep(0, 0, after, None)
    covered = [row.id for row in rows if wanted.covers(row.queue)]
    deletable, deleted = deletable_with_lines(connection, covered)
    left = set(covered) - set(deletable)
    locked = lock_tasks(connection, deletable, status_is(Status.DONE), is_old, skip_locked=True)
    if locked:
        deleted += delete_rows(connection, locked)
    is_full = len(rows) == limit or bool(left)
    rows = list(takewhile(lambda row: row.id not in left, rows))  # the next step begins where this one was cut
    if not rows:
        return HistoryStep(limit, deleted, after, None)
    skipped = set(covered) - {task.id for task in locked}
    settled_until = rows[0].now - timedelta(seconds=LATE_COMMIT)
    settled = list(takewhile(lambda row: row.closing_at <= settled_until and row.id not in skipped, rows))
    last, settled_last = rows[-1], settled[-1] if settled else None
    return HistoryStep(
        read=limit if is_full else len(rows),
        deleted=deleted,
        place=HistoryPlace(last.closing_at, last.id),
        settled=None if settled_last is None else HistoryPlace(settled_last.closing_at, settled_last.id),
    )


def _beyond(place: HistoryPlace | None) -> list[sa.ColumnElement[bool]]:
    """A task follows a place. The first condition is the beginning of the index's range."""
    if place is None:
        return []
    follows = sa.or_(tasks.c.closing_at > place.closing_at, tasks.c.id > place.task_id)
    return [tasks.c.closing_at >= place.closing_at, follows]
