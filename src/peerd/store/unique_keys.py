"""Unique keys: of all enqueues of one key, at most one makes a task while the key holds.

The key's row is locked by an upsert that changes nothing. With the lock, the row is read: a key that does not hold any
longer is taken, else the id of its task is the result. Competitors wait for the end of that transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import UniqueKeyTaken
from peerd.domain.lifecycle import FINISHED
from peerd.domain.task import Task
from peerd.store.connection.mysql import reads_latest_commits
from peerd.store.schema.tables import tasks, unique_keys
from peerd.store.schema.types import now, seconds_from_now
from peerd.store.statements import insert_if_absent, new_token
from peerd.store.tasks.conditions import select_by_id


def acquire_key(connection: Connection, queue: str, key: str, token: int, scope: str | float) -> int | None:
    """Take a key for a task that is about to be inserted, or find the task that has it.

    Args:
        connection: in the transaction that inserts the task.
        queue: keys of different queues are different keys.
        key: the key.
        token: from `new_token`; it identifies the row that this call has written.
        scope: ``unfinished``, ``forever``, or seconds.

    Returns:
        None when the key was taken; else the id of the task that has it.
    """
    row = {"queue": queue, "unique_key": key, "token": token, **_scope_values(scope)}
    insert_if_absent(connection, unique_keys, [row], key=("queue", "unique_key"))
    expired = sa.and_(unique_keys.c.expires_at.is_not(None), unique_keys.c.expires_at <= now()).label("expired")
    columns = (unique_keys.c.task_id, unique_keys.c.token, unique_keys.c.scope, expired)
    found = connection.execute(sa.select(*columns).where(*_is_key(queue, key)).with_for_update()).one()
    if found.token != token:
        if found.task_id is not None and _key_still_holds(
            connection, found.task_id, found.scope, expired=bool(found.expired)
        ):
            return int(found.task_id)
        taken = sa.update(unique_keys).where(*_is_key(queue, key))
        connection.execute(taken.values(token=token, created_at=now(), task_id=None, **_scope_values(scope)))
    return None


def assign_key(connection: Connection, queue: str, key: str, task_id: int) -> None:
    """Write which task has the key that was just taken."""
    connection.execute(sa.update(unique_keys).where(*_is_key(queue, key)).values(task_id=task_id))


def reacquire_key(connection: Connection, task: Task, token: int) -> None:
    """Give a finished task its key back, because it is to be run again.

    Raises:
        UniqueKeyTaken: a younger task has it.
    """
    if task.unique_key is None:
        return
    if _acquire_for(connection, task, task.unique_key, task.queue, token) is None:
        assign_key(connection, task.queue, task.unique_key, task.id)


def _acquire_for(connection: Connection, task: Task, key: str, queue: str, token: int) -> int | None:
    """`acquire_key` for a task that may have it already; another holder is an error."""
    holder = acquire_key(connection, queue, key, token, "unfinished")
    if holder is not None and holder != task.id:
        raise UniqueKeyTaken(task.id, key, holder)
    return holder


def reacquire_keys(connection: Connection, keyed: Sequence[Task]) -> dict[int, UniqueKeyTaken]:
    """`reacquire_key` for many tasks with different keys; the refused ones, by their ids.

    A key whose row is missing, or is the task's own, is taken together with the others. Only one that has another
    holder costs statements of its own.
    """
    refused: dict[int, UniqueKeyTaken] = {}
    by_queue: dict[str, dict[str, Task]] = defaultdict(dict)
    for task in keyed:
        by_queue[task.queue][str(task.unique_key)] = task
    for queue, tasks_of in sorted(by_queue.items()):
        for holder in _take_own_keys(connection, queue, tasks_of):
            try:
                reacquire_key(connection, holder, new_token())
            except UniqueKeyTaken as error:
                refused[holder.id] = error
    return refused


def _take_own_keys(connection: Connection, queue: str, tasks_of: Mapping[str, Task]) -> list[Task]:
    """Take the keys of a queue that no other task holds, or has held last; the tasks of the others."""
    token, keys = new_token(), sorted(tasks_of)
    mine = {"queue": queue, "token": token, **_scope_values("unfinished")}
    rows = [{**mine, "unique_key": key, "task_id": tasks_of[key].id} for key in keys]
    insert_if_absent(connection, unique_keys, rows, key=("queue", "unique_key"))
    are_keys = sa.and_(unique_keys.c.queue == queue, unique_keys.c.unique_key.in_(keys))
    expired = sa.and_(unique_keys.c.expires_at.is_not(None), unique_keys.c.expires_at <= now()).label("expired")
    columns = (*(unique_keys.c[name] for name in ("unique_key", "task_id", "token", "scope")), expired)
    found = connection.execute(sa.select(*columns).where(are_keys).order_by(unique_keys.c.unique_key).with_for_update())
    over: list[str] = []
    others: list[Task] = []
    for row in found:
        task = tasks_of[row.unique_key]
        if row.token == token:
            continue
        if row.task_id != task.id:
            others.append(task)
        elif row.scope == "unfinished":
            over += [row.unique_key] if task.status in FINISHED else []
        elif row.scope == "period" and row.expired:
            over.append(row.unique_key)
    if over:
        taken = sa.update(unique_keys).where(unique_keys.c.queue == queue, unique_keys.c.unique_key.in_(over))
        connection.execute(taken.values(token=token, created_at=now(), **_scope_values("unfinished")))
    return others


def move_key(connection: Connection, task: Task, queue: str) -> None:
    """Give a task its key in another queue, with the same scope.

    Raises:
        UniqueKeyTaken: another task has it there.
    """
    if task.unique_key is None:
        return
    own = sa.and_(*_is_key(task.queue, task.unique_key), unique_keys.c.task_id == task.id)
    row = connection.execute(sa.select(unique_keys.c.scope, unique_keys.c.expires_at).where(own)).first()
    _acquire_for(connection, task, task.unique_key, queue, new_token())
    scope = {} if row is None else {"scope": row.scope, "expires_at": row.expires_at}
    moved = sa.update(unique_keys).where(*_is_key(queue, task.unique_key))
    connection.execute(moved.values(task_id=task.id, **scope))
    connection.execute(sa.delete(unique_keys).where(own))


def delete_keys(connection: Connection, keys: list[tuple[str, str]], task_ids: list[int]) -> None:
    """Delete the ``unfinished`` keys of tasks whose rows are being deleted; other scopes outlive their tasks."""
    by_queue: dict[str, list[str]] = defaultdict(list)
    for queue, key in keys:
        by_queue[queue].append(key)
    for queue, own in sorted(by_queue.items()):
        connection.execute(
            sa.delete(unique_keys)
            .where(unique_keys.c.queue == queue, unique_keys.c.unique_key.in_(sorted(own)))
            .where(unique_keys.c.scope == "unfinished", unique_keys.c.task_id.in_(task_ids))
        )


def _is_key(queue: str, key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return unique_keys.c.queue == queue, unique_keys.c.unique_key == key


def _scope_values(scope: str | float) -> dict[str, object]:
    if isinstance(scope, str):
        return {"scope": scope, "expires_at": None}
    return {"scope": "period", "expires_at": seconds_from_now(scope)}


def _key_still_holds(connection: Connection, task_id: int, scope: str, *, expired: bool) -> bool:
    """Whether a key that was taken earlier still holds."""
    match scope:
        case "forever":
            return True
        case "period":
            return not expired
        case _:
            return _is_unfinished(connection, task_id)


def _is_unfinished(connection: Connection, task_id: int) -> bool:
    """Whether a task has not ended.

    It is read without a lock first: a lock would make the holder's completion wait for the caller's transaction. A
    caller's transaction on MySQL may be in REPEATABLE READ, though, and see the table as it was before the key was
    locked: a task that it cannot see, or sees finished, is read again as it is now.
    """
    statement = select_by_id(sa.select(tasks.c.status).where(tasks.c.id == task_id))
    status = connection.execute(statement).scalar()
    if (status is None or status in FINISHED) and not reads_latest_commits(connection):
        status = connection.execute(statement.with_for_update()).scalar()
    return status is not None and status not in FINISHED
