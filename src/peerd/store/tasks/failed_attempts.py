"""The newest attempts that failed, of all tasks: found by their ids, which grow with time, so no index is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import CRASH_LABELS, FAILURE_LABELS
from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.types import seconds_from_now

MOST_EXAMINED: Final = 5_000
"""Attempts that one look reads."""
MOST_TEXT: Final = 1_000
"""Characters that are read of an error."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt that failed, and its task.

    Attributes:
        queue, name: of the task.
        task_id: the task's.
        is_dead: the task is dead now.
        error: the beginning of its text.
        cause: how its process died, if it did.
        ended_at: when.
        process_id: of the process that ran it.
        outcome: its label.
    """

    queue: str
    name: str
    task_id: int
    is_dead: bool
    error: str
    cause: str | None
    ended_at: datetime
    process_id: int | None
    outcome: str


class FailedAttempts(msgspec.Struct, frozen=True):
    """Failed attempts, the newest first; ``complete``: there are no more of that time."""

    items: list[FailedAttempt]
    complete: bool


def list_failed_attempts(
    connection: Connection,
    seconds: float,
    queues: Collection[str] | None = None,
    name: str | None = None,
    most: int = MOST_EXAMINED,
) -> FailedAttempts:
    """The attempts that failed in the last seconds, among the newest that did not succeed.

    Args:
        connection: of any transaction.
        seconds: of time.
        queues: only those of tasks of these queues.
        name: only those of tasks with this name.
        most: attempts that are examined at the most.
    """
    newest = sa.select(attempts).order_by(attempts.c.id.desc()).limit(most).subquery("newest")
    is_recent = newest.c.ended_at >= seconds_from_now(-seconds)
    error = sa.func.substr(newest.c.error, 1, MOST_TEXT)
    columns = (newest.c.cause, newest.c.ended_at, newest.c.process_id, newest.c.outcome)
    statement = sa.select(is_recent, tasks.c.queue, tasks.c.name, tasks.c.id, tasks.c.status, error, *columns)
    joined = statement.outerjoin_from(newest, tasks, tasks.c.id == newest.c.task_id).order_by(newest.c.id.desc())
    rows = connection.execute(joined).all()
    found = [
        FailedAttempt(queue, handler, task_id, status == Status.DEAD, error or "", *others)
        for recent, queue, handler, task_id, status, error, *others in rows
        if recent and others[-1] in FAILURE_LABELS and task_id is not None
        if (queues is None or queue in queues) and (name is None or handler == name)
    ]
    return FailedAttempts(found, len(rows) < most or not rows[-1][0])


def tasks_lost_with_processes(connection: Connection, queues: Collection[str] | None = None) -> dict[int, list[int]]:
    """The tasks that processes ran when they died, by the ids of the processes, among the newest attempts.

    Args:
        connection: of any transaction.
        queues: only tasks of these queues.
    """
    newest = sa.select(attempts).order_by(attempts.c.id.desc()).limit(MOST_EXAMINED).subquery("newest")
    has_died = (newest.c.outcome.in_(CRASH_LABELS), newest.c.process_id.is_not(None))
    joined = sa.select(newest.c.process_id, tasks.c.id).join_from(newest, tasks, tasks.c.id == newest.c.task_id)
    of_queues = sa.true() if queues is None else tasks.c.queue.in_(queues)
    lost: dict[int, list[int]] = defaultdict(list)
    for process_id, task_id in connection.execute(joined.where(*has_died, of_queues).order_by(newest.c.id.desc())):
        lost[process_id].append(task_id)
    return lost
