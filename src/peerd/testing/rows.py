"""Valid rows of tasks for tests, as values and in a table: a status implies other columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store.connection.database import Database
from peerd.store.nodes import find_node, new_incarnation, register_incarnation
from peerd.store.outcomes import database_now
from peerd.store.processes import register_process
from peerd.store.schema.tables import attempts, processes, tasks, unique_keys
from peerd.store.statements import new_token
from peerd.store.tasks.pages import get_task

MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The default time of rows."""
DUE_IN: Final = timedelta(hours=1)
"""The default time until a task is due again."""
ERROR: Final = "RuntimeError: boom"
OTHER_NODE: Final = "elsewhere"
"""The default node of holders."""
WAS_CLAIMED: Final = (Status.WORKING, Status.DONE, Status.DEAD, Status.BURIED)
"""Statuses that only a claimed task can have; so can any with failed attempts."""


def make_task(status: Status | str = Status.WORKING, **columns: Any) -> Task:
    """A task's row as a value, in a status; without one, as its worker has it in its first attempt.

    Args:
        status: it implies other columns: a done task has a holder, a lease and the time of its end.
        columns: values that differ.

    >>> task = make_task(attempts=2)
    >>> task.status, task.attempts, task.lease
    (<Status.WORKING: 'working'>, 2, 3)
    >>> make_task("failure", queue="video").error
    'RuntimeError: boom'
    """
    row: dict[str, Any] = dict.fromkeys(Task.__struct_fields__)
    row |= {"id": 1, "queue": "test", "name": "", "priority": 10, "failures": 0, "crashes": 0, "lease": 0}
    row |= {"created_at": MOMENT, "updated_at": MOMENT}
    holder = {"worker_node_id": 1, "process_id": 1}
    return Task(**(row | implied_columns(Status(status), columns, MOMENT, holder)))


def insert_task(where: Database | Connection, status: Status | str = Status.PENDING, **columns: Any) -> Task:
    """Insert a task in a status as if it had reached it by itself: with its attempts, holder and times.

    Without other values, the holder is a process of a node named ``elsewhere``, whose last heartbeat was at
    ``checked_at``: if that is long ago, the task will be rescued.

    Args:
        where: a `Database`, or a connection in a transaction of yours.
        status: any of the table's.
        columns: values that differ.

    Returns:
        the row, read back.

    Example::

        task = insert_task(database, "working", queue="video", checked_at=now - timedelta(minutes=1))
    """
    if isinstance(where, Database):
        return where.run(_insert, Status(status), columns)
    return _insert(where, Status(status), columns)


def implied_columns(
    status: Status, columns: Mapping[str, Any], now: datetime, holder: Mapping[str, int]
) -> dict[str, Any]:
    """The given columns, and those that the status and they imply; ``holder`` has the columns of the last holder."""
    most = columns.get("max_attempts") or 3
    past = {Status.FAILURE: 1, Status.DEAD: most}.get(status, 0)
    failed = columns.get("attempts", past)
    claims = failed + (status in (Status.WORKING, Status.DONE, Status.BURIED))
    row: dict[str, Any] = {"status": status, "attempts": failed, "failures": failed - columns.get("crashes", 0)}
    if claims:
        row |= {"lease": claims, "max_attempts": most, "worker_started_at": now, "checked_at": now, **holder}
    if failed:
        row["error"] = ERROR
    match status:
        case Status.SCHEDULED | Status.FAILURE:
            row["start_at"] = now + DUE_IN
        case Status.DONE:
            row |= {"error": None, "progress": 1.0, "finished_at": now}
        case Status.DEAD:
            row["finished_at"] = now
        case Status.CANCELED:
            row |= {"error": "canceled by hand", "finished_at": now, "lease": failed + 1}  # canceling raises it
    return {**row, **columns}


def _insert(connection: Connection, status: Status, columns: Mapping[str, Any]) -> Task:
    now = database_now(connection)
    row = {"queue": "test", **implied_columns(status, columns, now, _holder(connection, status, columns))}
    if row.get("process_id") is not None:
        row.setdefault("claim_token", new_token())
    key = connection.execute(sa.insert(tasks).values(row)).inserted_primary_key
    assert key is not None
    task = get_task(connection, int(key[0]))
    _insert_attempts(connection, task)
    if task.unique_key is not None and not task.finished:
        _insert_unique_key(connection, task)
    return task


def _holder(connection: Connection, status: Status, columns: Mapping[str, Any]) -> dict[str, int]:
    """The columns of a registered process, if the task has or had a holder and none is given."""
    given = {"worker_node_id", "process_id"} <= set(columns)
    was_claimed = status in (*WAS_CLAIMED, Status.FAILURE) or columns.get("attempts", 0) > 0
    if given or not was_claimed:
        return {}
    node = find_node(connection, OTHER_NODE)
    if node is None:
        register_incarnation(connection, OTHER_NODE, new_incarnation(), replaces=None)
        node = find_node(connection, OTHER_NODE)
    assert node is not None
    incarnation = node.incarnation or new_incarnation()
    process_id = register_process(
        connection, node_id=node.id, incarnation=incarnation, kind="test", slot="test-1", role="worker", pid=1
    )
    if (touched := columns.get("checked_at")) is not None:
        connection.execute(sa.update(processes).where(processes.c.id == process_id).values(checked_at=touched))
    return {"worker_node_id": node.id, "process_id": process_id}


def _insert_attempts(connection: Connection, task: Task) -> None:
    """The attempts of the row; in the last ``crashes`` of them their process died."""
    for number in range(1, task.attempts + 1):
        crashed = number > task.attempts - task.crashes
        last = number == task.attempts and task.status is Status.DEAD
        row = {
            "task_id": task.id,
            "lease": number,
            "number": number,
            "node_id": task.worker_node_id,
            "process_id": task.process_id,
            "started_at": task.worker_started_at,
            "outcome": "crash" if crashed else "dead" if last else "failure",
            "error": task.error or ERROR,
            "cause": "signal 9 (SIGKILL)" if crashed else None,
        }
        connection.execute(sa.insert(attempts).values(row))


def _insert_unique_key(connection: Connection, task: Task) -> None:
    row = {"queue": task.queue, "unique_key": task.unique_key, "task_id": task.id}
    connection.execute(sa.insert(unique_keys).values(row | {"token": new_token(), "scope": "unfinished"}))
