"""Reading tasks: one, a page of them, their attempts, and their number."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.store.schema.tables import attempts, tasks
from peerd.store.tasks.rows import TASK_COLUMNS, to_task


def find_task(connection: Connection, task_id: int) -> Task | None:
    """The task of this id, if it is there."""
    if not 0 < task_id < 2**63:
        return None
    row = connection.execute(sa.select(*TASK_COLUMNS).where(tasks.c.id == task_id)).mappings().first()
    return None if row is None else to_task(row)


def get_task(connection: Connection, task_id: int) -> Task:
    """The task of this id.

    Raises:
        TaskNotFound: it is not there.
    """
    task = find_task(connection, task_id)
    if task is None:
        raise TaskNotFound(task_id)
    return task


def list_attempts(connection: Connection, task_id: int) -> list[Attempt]:
    """The attempts of a task that did not succeed, in their order."""
    columns = [attempts.c[field] for field in Attempt.__struct_fields__]
    statement = sa.select(*columns).where(attempts.c.task_id == task_id).order_by(attempts.c.id)
    return [Attempt(**row) for row in connection.execute(statement).mappings()]


def count_tasks(connection: Connection, queues: Collection[str] | None = None) -> dict[Status, int]:
    """How many tasks there are of each status, in all queues or in these.

    It reads a whole index, or the table: not for every request of a page.
    """
    counts = dict.fromkeys(Status, 0)
    statement = sa.select(tasks.c.status, sa.func.count()).group_by(tasks.c.status)
    if queues is not None:
        statement = statement.where(tasks.c.queue.in_(sorted(queues)))
    for status, count in connection.execute(statement):
        counts[Status(status)] = count
    return counts
