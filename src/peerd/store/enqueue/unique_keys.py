"""Unique keys: of all enqueues of one key, at most one makes a task while the key holds.

The key's row is locked by an upsert that changes nothing; whoever has the lock looks whether the key still holds, and
takes it or learns whose it is. Competitors wait for that transaction's end.
"""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import UniqueKeyTaken
from peerd.domain.lifecycle import FINISHED
from peerd.domain.task import Task
from peerd.store.connection.caller_session import reads_latest_commits
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import tasks, unique_keys
from peerd.store.tasks.conditions import select_by_id
from peerd.store.tasks.rows import insert_if_absent


def acquire_key(connection: Connection, queue: str, key: str, token: int, scope: str | float) -> int | None:
    """Take a key for a task that is about to be inserted, or learn which task has it.

    Args:
        connection: in the transaction that inserts the task.
        queue: keys of different queues are different keys.
        key: the key.
        token: a number that nobody else uses, to know one's own row again.
        scope: ``unfinished``, ``forever``, or seconds.

    Returns:
        None when the key was taken; else the id of the task that has it.
    """
    _lock_key(connection, queue, key, token, scope)
    row = connection.execute(
        sa.select(unique_keys.c.task_id, unique_keys.c.token, unique_keys.c.scope, _has_expired())
        .where(unique_keys.c.queue == queue, unique_keys.c.unique_key == key)
        .with_for_update()
    ).one()
    if row.token != token:
        if row.task_id is not None and _key_still_holds(connection, row.task_id, row.scope, expired=bool(row.expired)):
            return int(row.task_id)
        connection.execute(
            sa.update(unique_keys)
            .where(unique_keys.c.queue == queue, unique_keys.c.unique_key == key)
            .values(token=token, created_at=now(), task_id=None, **_scope_values(scope))
        )
    return None


def assign_key(connection: Connection, queue: str, key: str, task_id: int) -> None:
    """Say which task has the key that was just taken."""
    connection.execute(
        sa.update(unique_keys)
        .where(unique_keys.c.queue == queue, unique_keys.c.unique_key == key)
        .values(task_id=task_id)
    )


def reacquire_key(connection: Connection, task: Task, token: int) -> None:
    """Give a finished task its key back, because it is to be run again.

    Raises:
        UniqueKeyTaken: a younger task has it.
    """
    if task.unique_key is None:
        return
    holder = acquire_key(connection, task.queue, task.unique_key, token, "unfinished")
    if holder is not None and holder != task.id:
        raise UniqueKeyTaken(task.id, task.unique_key, holder)
    if holder is None:
        assign_key(connection, task.queue, task.unique_key, task.id)


def delete_keys(connection: Connection, keys: list[tuple[str, str]], task_ids: list[int]) -> None:
    """Delete the ``unfinished`` keys of tasks whose rows are being deleted; other scopes outlive their tasks."""
    by_queue: dict[str, list[str]] = defaultdict(list)
    for queue, key in keys:
        by_queue[queue].append(key)
    for queue, own in sorted(by_queue.items()):
        connection.execute(
            sa.delete(unique_keys).where(
                unique_keys.c.queue == queue,
                unique_keys.c.unique_key.in_(sorted(own)),
                unique_keys.c.scope == "unfinished",
                unique_keys.c.task_id.in_(task_ids),
            )
        )


def _lock_key(connection: Connection, queue: str, key: str, token: int, scope: str | float) -> None:
    row = {"queue": queue, "unique_key": key, "token": token, **_scope_values(scope)}
    insert_if_absent(connection, unique_keys, [row], key=("queue", "unique_key"))


def _scope_values(scope: str | float) -> dict[str, object]:
    match scope:
        case str():
            return {"scope": scope, "expires_at": None}
        case seconds:
            return {"scope": "period", "expires_at": seconds_from_now(seconds)}


def _has_expired() -> sa.ColumnElement[bool]:
    return sa.and_(unique_keys.c.expires_at.is_not(None), unique_keys.c.expires_at <= now()).label("expired")


def _key_still_holds(connection: Connection, task_id: int, scope: str, *, expired: bool) -> bool:
    """Whether a key that somebody took still holds."""
    match scope:
        case "forever":
            return True
        case "period":
            return not expired
        case _:
            return _is_unfinished(connection, task_id)


def _is_unfinished(connection: Connection, task_id: int) -> bool:
    """Whether a task has not ended.

    Without a lock first: one would make the holder's completion wait for the caller's transaction. A caller of ours
    on MySQL may be in REPEATABLE READ, though, and see a table that is older than the lock it has just got: a task
    that it cannot see, or sees finished, is read again as it is now.
    """
    statement = select_by_id(sa.select(tasks.c.status).where(tasks.c.id == task_id))
    status = connection.execute(statement).scalar()
    if (status is None or status in FINISHED) and not reads_latest_commits(connection):
        status = connection.execute(statement.with_for_update()).scalar()
    return status is not None and status not in FINISHED
