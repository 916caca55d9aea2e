"""The process that runs a task."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import TaskNotRunning
from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import nodes, processes
from peerd.store.tasks.read import get_task


def find_task_process(connection: Connection, task_id: int) -> tuple[str, int]:
    """The name of the node that runs a task, and the process id of the worker process.

    Raises:
        TaskNotFound: there is no such task.
        TaskNotRunning: it does not run, or a queue client holds it.
    """
    task = get_task(connection, task_id)
    if task.status is not Status.WORKING:
        raise TaskNotRunning(task_id, f"it is {task.status}, not working")
    if task.deadline_at is not None:
        raise TaskNotRunning(task_id, "a queue client holds it, whose code runs elsewhere")
    columns = nodes.c.name, processes.c.pid
    joined = sa.select(*columns).join(processes, processes.c.node_id == nodes.c.id)
    row = connection.execute(joined.where(processes.c.id == task.process_id)).first()
    if row is None:
        raise TaskNotRunning(task_id, "the process that has claimed it is not on record")
    return row.name, row.pid
