"""Purging done tasks where some queues keep them for longer or shorter than the others.

The tasks that ended are read in the order of their ends, by an index that knows no queues, so that no task costs an
index entry more. Each age has its own walk along this order (`peerd.manager.walks`): it goes up to the tasks that
ended so long ago, deletes those of its own queues, and leaves the others to walks of other ages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.actions import delete_rows
from peerd.store.tasks.conditions import is_closing_as, status_is
from peerd.store.tasks.log_lines import deletable_with_lines
from peerd.store.tasks.rows import BATCH, lock_tasks

LATE_COMMIT: Final = 60.0
"""Seconds that may pass between the end of a task and the commit that shows it."""


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
    """The ages at which done tasks are deleted: that of all queues, and those of the queues with their own.

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
    """That a task follows a place. The first condition is the beginning of the index's range."""
    if place is None:
        return []
    follows = sa.or_(tasks.c.closing_at > place.closing_at, tasks.c.id > place.task_id)
    return [tasks.c.closing_at >= place.closing_at, follows]
