"""Reading tasks: one, a page of them, their attempts, and their number."""

from __future__ import annotations

from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import Attempt, Task
from peerd.store.schema.tables import attempts, tasks
from peerd.store.tasks.conditions import status_is
from peerd.store.tasks.rows import TASK_COLUMNS, to_task

LARGE_COLUMNS: Final = ("body", "body_bytes", "result")
SMALL_COLUMNS: Final = tuple(
    sa.null().label(column.name) if column.name in LARGE_COLUMNS else column for column in TASK_COLUMNS
)


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


class TaskConditions(msgspec.Struct, frozen=True):
    """A filter of tasks; None does not filter. ``node_id``: pinned to this node, or held by it, now or last."""

    queue: str | None = None
    name: str | None = None
    status: Status | None = None
    node_id: int | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """The conditions that such a task meets."""
        texts = ((tasks.c.queue, self.queue), (tasks.c.name, self.name))
        conditions: list[sa.ColumnElement[bool]] = [column == text for column, text in texts if text is not None]
        if self.status is not None:
            conditions.append(status_is(Status(self.status)))
        if self.node_id is not None:
            conditions.append(sa.or_(tasks.c.node_id == self.node_id, tasks.c.worker_node_id == self.node_id))
        return conditions


def list_tasks(
    connection: Connection,
    wanted: TaskConditions | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
    bodies: bool = True,
) -> list[Task]:
    """A page of tasks, newest first: with ids below ``before``, the last one of the page before.

    Without ``bodies``, bodies and results, which may be large, are not read: they are None.
    """
    conditions = (wanted or TaskConditions()).conditions()
    if before is not None:
        conditions.append(tasks.c.id < before)
    columns = TASK_COLUMNS if bodies else SMALL_COLUMNS
    statement = sa.select(*columns).where(*conditions).order_by(tasks.c.id.desc()).limit(limit)
    return [to_task(row) for row in connection.execute(statement).mappings()]


def list_attempts(connection: Connection, task_id: int) -> list[Attempt]:
    """The attempts of a task that did not succeed, in their order."""
    columns = [attempts.c[field] for field in Attempt.__struct_fields__]
    statement = sa.select(*columns).where(attempts.c.task_id == task_id).order_by(attempts.c.id)
    return [Attempt(**row) for row in connection.execute(statement).mappings()]


def count_tasks(connection: Connection) -> dict[Status, int]:
    """How many tasks there are of each status. It reads a whole index: not for every request of a page."""
    counts = dict.fromkeys(Status, 0)
    for status, count in connection.execute(sa.select(tasks.c.status, sa.func.count()).group_by(tasks.c.status)):
        counts[Status(status)] = count
    return counts
