"""Reading tasks: one, a page of them, their attempts, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.store.rows import TASK_COLUMNS, to_task
from peerd.store.tables import attempts, tasks


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


def list_tasks(
    connection: Connection,
    *,
    queue: str | None = None,
    name: str | None = None,
    status: Status | None = None,
    node_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Task]:
    """A page of tasks, newest first.

    Args:
        connection: a transaction, which may be one that only reads.
        queue: only of this queue.
        name: only of this handler.
        status: only of this status.
        node_id: only those pinned to this node, or held by it.
        before: only ids below this one: the last of the page before.
        limit: tasks at the most.
    """
    conditions = []
    if queue is not None:
        conditions.append(tasks.c.queue == queue)
    if name is not None:
        conditions.append(tasks.c.name == name)
    if status is not None:
        conditions.append(tasks.c.status == sa.literal_column(f"'{Status(status)}'"))
    if node_id is not None:
        conditions.append(sa.or_(tasks.c.node_id == node_id, tasks.c.worker_node_id == node_id))
    if before is not None:
        conditions.append(tasks.c.id < before)
    statement = sa.select(*TASK_COLUMNS).where(*conditions).order_by(tasks.c.id.desc()).limit(limit)
    return [to_task(row) for row in connection.execute(statement).mappings()]


def list_attempts(connection: Connection, task_id: int) -> list[Attempt]:
    """The attempts of a task that did not succeed, in their order."""
    columns = [attempts.c[field] for field in Attempt.__struct_fields__]
    statement = sa.select(*columns).where(attempts.c.task_id == task_id).order_by(attempts.c.id)
    return [Attempt(**row) for row in connection.execute(statement).mappings()]


def statuses(connection: Connection, ids: Sequence[int]) -> dict[int, Status]:
    """The statuses of these tasks; those that are gone are left out."""
    statement = sa.select(tasks.c.id, tasks.c.status).where(tasks.c.id.in_(sorted(ids)))
    return {row.id: Status(row.status) for row in connection.execute(statement)}


def count_tasks(connection: Connection) -> dict[Status, int]:
    """How many tasks there are of each status. It reads an index whole: not for every request of a page."""
    counts = dict.fromkeys(Status, 0)
    for status, count in connection.execute(sa.select(tasks.c.status, sa.func.count()).group_by(tasks.c.status)):
        counts[Status(status)] = count
    return counts
