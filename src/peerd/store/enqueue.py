"""Enqueuing: write tasks, one or many, in peerd's own transaction or in the caller's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import NodeNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import unique
from peerd.store.claim import new_token
from peerd.store.clock import now, seconds_from_now
from peerd.store.rows import batches, becomes
from peerd.store.tables import nodes, tasks
from peerd.store.types import MYSQL

ROWS_IN_AN_INSERT: Final = 1000


class Enqueued(msgspec.Struct, frozen=True):
    """What an enqueue answers: the task's id, and whether it is new (not so, when its unique key was taken)."""

    id: int
    created: bool = True


def enqueue(connection: Connection, new: NewTask) -> Enqueued:
    """Write one task.

    Args:
        connection: in a transaction, of ours or of the caller.
        new: the task; it was checked when it was made.

    Raises:
        NodeNotFound: it is pinned to a node that no one has ever registered.
    """
    return enqueue_many(connection, [new])[0]


def enqueue_many(connection: Connection, new: Sequence[NewTask]) -> list[Enqueued]:
    """Write many tasks; the answers stand in the order of what was given.

    Tasks with unique keys are written one by one, in the order of their keys, so that two bulk enqueues of the same
    keys do not wait for each other; all others in statements of many rows.

    Raises:
        NodeNotFound: see `enqueue`; nothing is written then.
    """
    node_ids = _node_ids(connection, {task.node for task in new if task.node is not None})
    answers: dict[int, Enqueued] = {}
    plain = [(place, task) for place, task in enumerate(new) if task.unique_key is None]
    for batch in batches(plain, ROWS_IN_AN_INSERT):
        ids = _insert(connection, [task for _, task in batch], node_ids)
        answers.update((place, Enqueued(task_id)) for (place, _), task_id in zip(batch, ids, strict=True))
    keyed = [(place, task) for place, task in enumerate(new) if task.unique_key is not None]
    for place, task in sorted(keyed, key=lambda pair: (pair[1].queue, pair[1].unique_key or "")):
        answers[place] = _enqueue_unique(connection, task, node_ids)
    return [answers[place] for place in range(len(new))]


def _enqueue_unique(connection: Connection, task: NewTask, node_ids: Mapping[str, int]) -> Enqueued:
    assert task.unique_key is not None
    token = new_token()
    holder = unique.take(connection, task.queue, task.unique_key, token, task.unique_for)
    if holder is not None:
        return Enqueued(holder, created=False)
    [task_id] = _insert(connection, [task], node_ids)
    unique.assign(connection, task.queue, task.unique_key, task_id)
    return Enqueued(task_id)


def _node_ids(connection: Connection, names: set[str]) -> dict[str, int]:
    if not names:
        return {}
    known = {row.name: row.id for row in connection.execute(sa.select(nodes.c.name, nodes.c.id))}
    for name in sorted(names - set(known)):
        raise NodeNotFound(name, sorted(known))
    return {name: known[name] for name in names}


def _insert(connection: Connection, new: Sequence[NewTask], node_ids: Mapping[str, int]) -> list[int]:
    """Insert rows; their ids in the same order.

    Rows that set different columns are different statements, because a column that is left out takes its default.
    """
    token = new_token()
    groups: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for place, task in enumerate(new):
        values = _values(task, node_ids) | {"claim_token": token}
        groups[tuple(values)].append((place, values))
    ids: dict[int, int] = {}
    for rows in groups.values():
        inserted = _insert_alike(connection, [values for _, values in rows], token)
        ids.update((place, task_id) for (place, _), task_id in zip(rows, inserted, strict=True))
    return [ids[place] for place in range(len(new))]


def _insert_alike(connection: Connection, rows: list[dict[str, Any]], token: int) -> Sequence[int]:
    if len(rows) == 1 and connection.dialect.name in MYSQL:
        return [connection.execute(sa.insert(tasks).values(rows[0])).inserted_primary_key[0]]
    if connection.dialect.name in MYSQL:
        return _insert_without_returning(connection, rows, token)
    statement = sa.insert(tasks).returning(tasks.c.id, sort_by_parameter_order=True)
    if any(isinstance(value, sa.ColumnElement) for value in rows[0].values()):
        return [connection.execute(sa.insert(tasks).values(row).returning(tasks.c.id)).scalar_one() for row in rows]
    return connection.execute(statement, rows).scalars().all()


def _insert_without_returning(connection: Connection, rows: list[dict[str, Any]], token: int) -> Sequence[int]:
    """One statement, whose first id MySQL tells; the others are found by the token that only these rows carry.

    That ids of one statement follow each other without gaps is true of one server in one mode; nothing here needs it.
    """
    first = connection.execute(sa.insert(tasks).values(rows)).lastrowid
    mine = (
        sa.select(tasks.c.id)
        .where(tasks.c.id >= first, tasks.c.claim_token == token)
        .order_by(tasks.c.id)
        .limit(len(rows))
    )
    return connection.execute(mine).scalars().all()


def _values(task: NewTask, node_ids: Mapping[str, int]) -> dict[str, Any]:
    """The columns that differ from their defaults.

    Start times ahead make a scheduled task. Whether a moment is ahead is for the database's clock to say.
    """
    values: dict[str, Any] = {
        "queue": task.queue,
        "name": task.name,
        "body": task.body,
        "body_bytes": task.body_bytes,
        "priority": task.priority,
        "max_attempts": task.max_attempts,
        "node_id": None if task.node is None else node_ids[task.node],
        "timeout": task.timeout,
        "unique_key": task.unique_key,
        "trace_context": task.trace_context,
    }
    if task.start_in:
        values |= {"start_at": seconds_from_now(task.start_in), "status": becomes(Status.SCHEDULED)}
    if task.start_at is not None:
        ahead = sa.cast(sa.literal(task.start_at, tasks.c.start_at.type), tasks.c.start_at.type) > now()
        values["start_at"] = task.start_at
        values["status"] = sa.case((ahead, becomes(Status.SCHEDULED)), else_=becomes(Status.PENDING))
    if task.finish_at is not None or task.finish_in is not None:
        in_seconds = seconds_from_now(task.finish_in) if task.finish_in is not None else None
        values["finish_at"] = task.finish_at if in_seconds is None else in_seconds
    return values
